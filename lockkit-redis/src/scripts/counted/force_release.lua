-- Frees the grant with this token.
-- ARGV token, PUBLISH or SPUBLISH, channels
-- Returns 1 freed | 0 there is no such grant | -1 newer
if is_newer(redis.pcall('GET', counter)) then return -1 end
local now, freed = clock(), false
prune(now, '')
local stored = redis.call('HGETALL', grants)
for i = 1, #stored, 2 do
  if string.match(stored[i + 1], '^%d+:(%d+)$') == ARGV[1] then
    take(stored[i], stored[i + 1])
    freed = true
  end
end
-- This write changes nothing. A primary that was demoted refuses it.
if not freed then redis.call('ZREM', live, ARGV[1]) end
serve(now, ARGV[2], ARGV[3])
return freed and 1 or 0
