-- Renews a lease. Never shortens it, never re-creates it.
-- KEYS lock, fence    ARGV owner, lease in ms
-- Returns the lease in ms | -1 gone | -2 another owner's
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then
  -- This write changes nothing. A primary that was demoted refuses it.
  local kept = redis.call('PTTL', KEYS[2])
  if kept ~= -1 then redis.call('PEXPIRE', KEYS[2], math.max(kept, 1)) end
  return owner and -2 or -1
end

local left = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))
-- This writes even if the lease already lasts longer. A primary that was demoted refuses a write,
-- and replicas confirm only writes.
if redis.call('PEXPIRE', KEYS[1], left) == 0 then return -1 end
-- The token outlives the lock by a day, however long the lock is held. A token that is ahead of the
-- clock is already kept for longer. A token that never lapses is not lockkit's.
local keep, kept = left + 86400000, redis.call('PTTL', KEYS[2])
if kept ~= -1 and kept < keep then redis.call('PEXPIRE', KEYS[2], keep) end
return left
