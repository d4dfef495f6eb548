-- Frees the grant with this token.
-- ARGV token, PUBLISH or SPUBLISH, channels
-- Returns 1 freed | 0 there is no such grant | -1 newer
if is_newer(redis.call('GET', counter)) then return -1 end
local owner, token = holder()
if not owner or token ~= ARGV[1] then
  -- This write changes nothing. A primary that was demoted refuses it.
  redis.call('ZREM', live, ARGV[1])
  return 0
end
redis.call('DEL', lock)
if redis.call('EXISTS', queue) == 1 then
  local now = clock()
  hand_over(now, next_token(now), ARGV[2], ARGV[3], {})
end
return 1
