-- Gives the lock of one owner to another one of its process; or, if others are to go first, to the first waiter.
-- ARGV owner, new owner, lease in ms, not_after in µs, 1 if those who wait go first, PUBLISH or SPUBLISH, channels,
--   the token that the owner has
-- {0, now} not held | {1, now, lease, token} granted | {2, now} too late, nothing done | {3, now} no token left |
-- {4, now} freed or handed over, as somebody waits | {5, now} a newer lockkit keeps the name
local now = clock()
if now > tonumber(ARGV[4]) then return {2, now} end
local owner = redis.call('GET', lock)
if owner ~= ARGV[1] then
  -- A primary that was demoted is found out by a write, which does nothing.
  redis.call('ZREM', live, ARGV[1])
  return {0, now}
end
if is_newer(redis.call('GET', fence_key)) then return {5, now} end
-- Also where the server has lost the last one: it may have been raised above the time.
local token = math.max(next_token(now) or math.huge, ARGV[8] + 1)
if token >= 9007199254740992 then return {3, now} end
if ARGV[5] == '1' and redis.call('EXISTS', queue) == 1 then
  if hand_over(now, token, ARGV[6], ARGV[7], {}) then return {4, now} end
  if redis.call('ZCOUNT', live, digits(now), '+inf') > 0 then
    -- Those who are left can't be told now: the lock is free, as after a release.
    redis.call('DEL', lock)
    return {4, now}
  end
end
local lease = tonumber(ARGV[3])
write_though_full()
give(ARGV[2], token, now, lease)
return {1, now, lease, token}
