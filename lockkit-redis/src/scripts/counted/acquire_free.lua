-- Comes before acquire.lua, and has the same arguments. If permits are free and no claim waits,
-- nothing of the code that follows is needed, and the definitions there take time.
-- Returns the token. It is also the time, and the lease is as long as was asked for.
local time = redis.call('TIME')
local now, token = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
if now > tonumber(ARGV[3]) then return {2, now} end
local last = redis.call('GET', KEYS[1])
-- The tokens are compared as texts: both have 16 digits from the year 2001 to 2286. Any other
-- content is looked at below.
if #token == 16 and (not last or #last == 16 and last < token) then
  local there, used, kept = redis.call('EXISTS', KEYS[2], KEYS[4], KEYS[5]), nil, -1
  if there == 0 then
    used = 0
  elseif there == 2 then
    local stored = redis.call('HMGET', KEYS[5], 'used', 'limit', ARGV[1])
    -- Holders beside no used permits are left over: the server has evicted their grants.
    if stored[1] ~= '0' and stored[2] == ARGV[10] and not stored[3] then used = stored[1] end
  end
  local sum = used and used + ARGV[9]
  local fits = sum and sum <= tonumber(ARGV[10])
  if fits and there == 2 then
    kept = redis.call('PTTL', KEYS[4])
    -- Without holders, the other of the two keys is the queue.
    fits = kept > -2 and redis.call('ZCOUNT', KEYS[4], '-inf', token) == 0
  end
  if fits then
    local lease = tonumber(ARGV[2])
    -- A number costs more than its text.
    if there == 0 then sum = ARGV[9] end
    redis.call('SET', KEYS[1], token)
    redis.call('ZADD', KEYS[4], now + lease * 1000, ARGV[1])
    redis.call('HSET', KEYS[5], ARGV[1], ARGV[9] .. ':' .. token, 'used', sum, 'limit', ARGV[10])
    if kept < lease then
      redis.call('PEXPIRE', KEYS[4], ARGV[2])
      redis.call('PEXPIRE', KEYS[5], ARGV[2])
    end
    return now
  end
end
