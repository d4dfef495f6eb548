-- One attempt of one owner to get one name.
-- KEYS lock, fence    ARGV owner, lease in ms, not_after in µs of server time
-- {0, now, ttl} busy | {1, now, lease, fence} granted | {2, now} too late, nothing done | {3, now} no fence left
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then return {2, now} end

local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return {0, now, redis.call('PTTL', KEYS[1])} end

local lease = tonumber(ARGV[2])
local last, fence, granted_to = redis.call('GET', KEYS[2]), 0, nil
if last then
  fence, granted_to = string.match(last, '^(%d+):(.*)$')
  fence = tonumber(fence) or 0
end
-- The fence is written before the lock: if it can't be, because its key is of another type, no lock may be left.
if not owner or granted_to ~= ARGV[1] then
  fence = math.max(fence + 1, now)
  if fence >= 9007199254740992 then return {3, now} end
  -- Kept for a day after the lease, and after the fence's own time if the clock was set back since.
  local keep = math.ceil((fence - now) / 1000) + lease + 86400000
  redis.call('SET', KEYS[2], string.format('%.0f:', fence) .. ARGV[1], 'PX', keep)
end

-- Mine already means that an earlier reply was lost: the lease starts again, but it never gets shorter.
local left = owner and redis.call('PTTL', KEYS[1]) or -1
if left < lease then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', lease)
  left = lease
end
return {1, now, left, fence}
