-- Frees permits that no claim waits for, and returns 1 freed | 0 gone. In any other case, the function
-- does nothing and returns nothing. If a lease has lapsed, another script removes it.
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
