-- Gives the lock of one owner to another owner of its process. If other waiters go first, gives it
-- to the first of them.
-- ARGV owner, new owner, lease in ms, not_after in µs, 1 if waiters go first, PUBLISH or SPUBLISH,
--   channels, the owner's token
-- {0, now} not held | {1, now, lease, token} granted | {2, now} too late, nothing done | {3, now}
--   no token left | {4, now} freed or handed over, because a claim waits | {5, now} a newer lockkit
--   keeps the name
local now = clock()
if now > tonumber(ARGV[4]) then return {2, now} end
local owner = holder()
if owner ~= ARGV[1] then
  -- This write changes nothing. A primary that was demoted refuses it.
  redis.call('ZREM', live, ARGV[1])
  return {0, now}
end
if is_newer(redis.call('GET', counter)) then return {5, now} end
-- The server may have lost the owner's token, which may have been raised above the time. The new
-- token is above it, too.
local token = math.max(next_token(now) or math.huge, ARGV[8] + 1)
if token >= 9007199254740992 then return {3, now} end
if ARGV[5] == '1' and redis.call('EXISTS', queue) == 1 then
  if hand_over(now, token, ARGV[6], ARGV[7], {}) then return {4, now} end
  if redis.call('ZCOUNT', live, digits(now), '+inf') > 0 then
    -- The remaining waiters can't be reached now. The lock is free, as after a release.
    redis.call('DEL', lock)
    return {4, now}
  end
end
local lease = tonumber(ARGV[3])
write_though_full()
give(ARGV[2], token, lease)
return {1, now, lease, token}
