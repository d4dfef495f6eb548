-- Renews a lease. Never shortens it, never re-creates it.
-- ARGV owner, lease in ms    lease in ms | -1 gone
return restart(ARGV[1], clock(), tonumber(ARGV[2])) or -1
