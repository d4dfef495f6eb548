-- Comes before acquire.lua, and has the same arguments. A free lock without waiters needs nothing
-- of the code that follows, and the definitions there take time.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then return {2, now} end
if not redis.call('GET', KEYS[1]) and redis.call('EXISTS', KEYS[3]) == 0 then
  local last, token = redis.call('GET', KEYS[2]), string.format('%.0f:', now)
  -- The tokens are compared as texts: both have 16 digits until the year 2286. Any other content is
  -- looked at below.
  if not last or last < token then
    redis.call('SET', KEYS[2], token .. ARGV[1], 'PX', ARGV[2] + 86400000)
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return {1, now, tonumber(ARGV[2]), now}
  end
end
