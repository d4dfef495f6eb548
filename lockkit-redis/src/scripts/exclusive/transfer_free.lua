-- Comes before transfer.lua, and has the same arguments. Without waiters that go first, a transfer
-- needs nothing of the code that follows.
-- Returns the token. It is also the time, and the lease is as long as was asked for.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now <= tonumber(ARGV[4]) and redis.call('GET', KEYS[1]) == ARGV[8] .. ':' .. ARGV[1]
  and (ARGV[5] == '0' or redis.call('EXISTS', KEYS[3]) == 0) then
  local token, last = time[1] .. string.sub('00000' .. time[2], -6), redis.call('GET', KEYS[2])
  -- The tokens are compared as texts, as in acquire_free.lua. The server may have lost the counter,
  -- so the owner's token is compared, too.
  if #token == 16 and last and #last == 16 and last < token and #ARGV[8] == 16 and ARGV[8] < token then
    -- This write changes nothing, and after it a full server refuses none of the next ones.
    redis.call('ZREM', KEYS[4], '')
    redis.call('SET', KEYS[2], token)
    redis.call('SET', KEYS[1], token .. ':' .. ARGV[2], 'PX', ARGV[3])
    return now
  end
end
