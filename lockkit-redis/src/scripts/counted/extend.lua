-- Renews a lease. Never shortens it, never re-creates it.
-- ARGV owner, lease in ms    lease in ms | -1 gone
local left = restart(ARGV[1], clock(), tonumber(ARGV[2]))
-- A primary that was demoted is found out by a write, which does nothing. A hold needs none of the keys of the queue.
if not left then redis.call('ZREM', live, ARGV[1]) end
return left or -1
