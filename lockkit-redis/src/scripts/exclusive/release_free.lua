-- Comes before release.lua, and has the same arguments. Without waiters there is nothing to hand
-- over.
if ARGV[2] == '' and ARGV[3] == '0' and redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
