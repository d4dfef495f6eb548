-- Comes before release.lua, and has the same arguments. Without waiters there is nothing to hand
-- over.
if ARGV[2] == '' and ARGV[3] == '0' then
  local time = redis.call('TIME')
  local moment = time[1] .. string.sub('00000' .. time[2], -6)
  local freed = release_free(KEYS[2], KEYS[4], KEYS[5], ARGV[1], moment)
  if freed then return freed end
end
