-- Renews a lease. Never shortens it, never re-creates it.
-- KEYS lock    ARGV owner, lease in ms
-- Returns the lease in ms | -1 gone | -2 another owner's
local value, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local ours = value and string.match(value, '^%d+:(.*)$') == ARGV[1]
if ours then left = math.max(left, tonumber(ARGV[2])) end
touch(KEYS[1], value, left)
return ours and left or value and -2 or -1
