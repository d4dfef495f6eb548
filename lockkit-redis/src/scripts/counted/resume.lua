-- Makes an owner the holder of a former owner's permits, with the same token. Never takes free
-- permits.
-- ARGV owner, lease in ms, not_after in µs, id of the former owner, its token, count, limit
-- {0, now, -1} there is no such grant | {1, now, lease, token} granted | {2, now} too late, nothing
--   done | {5, now} a newer lockkit keeps the name
local now = clock()
if now > tonumber(ARGV[3]) then return {2, now} end
if is_newer(redis.call('GET', counter)) then return {5, now} end

-- Moves the permits from the former owner. Returns the grant, or nil if there is none.
local function move(owner)
  if limit ~= tonumber(ARGV[7]) then return nil end
  local stored = redis.call('HGETALL', grants)
  for i = 1, #stored, 2 do
    local former, grant = stored[i], stored[i + 1]
    local count, token = string.match(grant, '^(%d+):(%d+)$')
    -- An owner's id comes before its label. The token may have been raised after the ticket was made.
    local there = string.sub(former, 1, 32) == ARGV[4] and count == ARGV[6]
      and tonumber(token) >= tonumber(ARGV[5])
    local deadline = there and redis.call('ZSCORE', holders, former)
    if deadline then
      write_though_full()
      redis.call('ZADD', holders, deadline, owner)
      redis.call('ZREM', holders, former)
      redis.call('HSET', grants, owner, grant)
      redis.call('HDEL', grants, former)
      return grant
    end
  end
end

local owner = ARGV[1]
local grant = prune(now, owner) or move(owner)
local left = grant and restart(owner, now, tonumber(ARGV[2]))
if left then return {1, now, left, tonumber(string.match(grant, '%d+$'))} end
-- This write changes nothing. A primary that was demoted refuses it.
redis.call('ZREM', live, owner)
-- The last lease may have lapsed while claims wait.
if limit and used == 0 then keep_limit() end
return {0, now, -1}
