-- Grants and frees permits of a name that no claim waits for. In any other case, these functions do
-- nothing and return nothing. `moment` is the time in µs. The tokens have 16 digits, as the times
-- have from the year 2001 to 2286.

local function acquire_free(queue, holders, grants, owner, lease, count, limit, moment, token)
  local there, sum, kept = redis.call('EXISTS', queue, holders, grants), nil, -1
  if there == 0 then
    if tonumber(count) > tonumber(limit) then return end
    -- A number costs more than its text.
    sum = count
  elseif there == 2 then
    local stored = redis.call('HMGET', grants, 'used', 'limit', owner)
    -- Holders beside no used permits are left over: the server has evicted their grants.
    if not stored[1] or stored[1] == '0' or stored[2] ~= limit or stored[3] then return end
    sum = stored[1] + count
    if sum > tonumber(limit) then return end
    kept = redis.call('PTTL', holders)
    -- Without holders, the other of the two keys is the queue.
    if kept == -2 or redis.call('ZCOUNT', holders, '-inf', moment) > 0 then return end
  else
    return
  end
  redis.call('SET', KEYS[1], token)
  redis.call('ZADD', holders, moment + lease * 1000, owner)
  redis.call('HSET', grants, owner, count .. ':' .. token, 'used', sum, 'limit', limit)
  if kept < tonumber(lease) then
    redis.call('PEXPIRE', holders, lease)
    redis.call('PEXPIRE', grants, lease)
  end
  return token
end

-- Returns 1 freed | 0 gone. If a lease has lapsed, another script removes it.
local function release_free(queue, holders, grants, owner, moment)
  if redis.call('EXISTS', queue) == 1 then return end
  local stored = redis.call('HMGET', grants, owner, 'used')
  if not stored[1] or redis.call('ZCOUNT', holders, '-inf', moment) > 0 then return end
  local count = string.match(stored[1], '^%d+')
  if count == stored[2] then
    -- If the holders were evicted, nothing was held.
    return redis.call('DEL', holders, grants) - 1
  end
  if redis.call('ZREM', holders, owner) == 0 then return end
  redis.call('HDEL', grants, owner)
  redis.call('HSET', grants, 'used', stored[2] - count)
  return 1
end
