-- Comes before acquire.lua, and has the same arguments. A free lock without waiters needs nothing
-- of the code that follows, and the definitions there take time.
-- Returns the token. It is also the time, and the lease is as long as was asked for.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then return {2, now} end
if redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then
  local token, last = time[1] .. string.sub('00000' .. time[2], -6), redis.call('GET', KEYS[2])
  -- The tokens are compared as texts: both have 16 digits from the year 2001 to 2286. Any other
  -- content is looked at below.
  if #token == 16 and (not last or #last == 16 and last < token) then
    redis.call('SET', KEYS[2], token)
    redis.call('SET', KEYS[1], token .. ':' .. ARGV[1], 'PX', ARGV[2])
    return now
  end
end
