-- Comes before acquire.lua, and has the same arguments. If permits are free and no claim waits,
-- nothing of the code that follows is needed, and the definitions there take time.
-- Returns the token. It is also the time, and the lease is as long as was asked for.
local time = redis.call('TIME')
local now, token = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
if now > tonumber(ARGV[3]) then return {2, now} end
local last = redis.call('GET', KEYS[1])
-- The tokens are compared as texts: both have 16 digits. Any other content is looked at below.
if #token == 16 and (not last or #last == 16 and last < token)
  and acquire_free(KEYS[2], KEYS[4], KEYS[5], ARGV[1], ARGV[2], ARGV[9], ARGV[10], token, token) then
  return now
end
