-- Renews a lease. Never shortens it, never re-creates it.
-- ARGV owner, lease in ms
-- Returns the lease in ms | -1 gone
local left = restart(ARGV[1], clock(), tonumber(ARGV[2]))
-- This write changes nothing. A primary that was demoted refuses it. A hold does not need the keys
-- of the queue.
if not left then redis.call('ZREM', live, ARGV[1]) end
return left or -1
