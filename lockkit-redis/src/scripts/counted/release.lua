-- Gives back the owner's permits, and leaves the queue.
-- ARGV owner, waiter or nothing if it never queued, until when an earlier request of this owner may
--   arrive (µs) or 0, PUBLISH or SPUBLISH, channels
-- Returns 1 freed | 0 gone | -1 done, but an earlier request may still arrive
-- A holder gives back its permits, whatever happened to the counter.
if redis.call('HEXISTS', grants, ARGV[1]) == 0 and is_newer(redis.pcall('GET', counter)) then return 0 end
local now = clock()
if ARGV[2] ~= '' then forget(ARGV[2]) end
local grant = prune(now, ARGV[1])
if grant then
  take(ARGV[1], grant)
else
  -- A primary that was demoted is empty for a while. It refuses this write, which changes nothing.
  redis.call('ZREM', live, ARGV[1])
end
serve(now, ARGV[4], ARGV[5])
if now <= tonumber(ARGV[3]) then return -1 end
return grant and 1 or 0
