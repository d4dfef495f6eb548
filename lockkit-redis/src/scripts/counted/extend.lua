-- Renews a lease. Never shortens it, never re-creates it.
-- ARGV owner, lease in ms    lease in ms | -1 gone
-- A primary that was demoted is found out by a write, which does nothing.
redis.call('ZREM', live, ARGV[1])
return restart(ARGV[1], clock(), tonumber(ARGV[2])) or -1
