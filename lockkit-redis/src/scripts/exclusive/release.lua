-- Gives back the owner's lock, and leaves the queue.
-- ARGV
--   `token:owner`, or `:owner` if the token is unknown
--   waiter, or nothing if it never queued
--   until when an earlier request of this owner may arrive (µs), or 0
--   PUBLISH or SPUBLISH, channels
--   optionally, another owner that may have the lock instead
-- Returns 1 freed | 0 gone | 2 another owner's | -1 done, but an earlier request may still arrive
local owner = holder()
local ours = owner == string.match(ARGV[1], '^%d*:(.*)$') or owner == ARGV[6]
local answer = owner and 2 or 0
if ARGV[2] ~= '' then forget(ARGV[2]) end
-- The script writes in any case, because a primary that was demoted refuses a write.
if not owner or ours then
  redis.call('DEL', lock)
else
  redis.call('ZREM', live, ARGV[1])
end
if ours then
  answer = 1
  if redis.call('EXISTS', queue) == 1 then
    local now = clock()
    hand_over(now, next_token(now), ARGV[4], ARGV[5], {})
  end
end
if ARGV[3] ~= '0' and clock() <= tonumber(ARGV[3]) then answer = -1 end
return answer
