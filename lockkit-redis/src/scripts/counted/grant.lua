-- Grants permits that are free, if no claim waits for them. In any other case, the function does
-- nothing and returns nothing. `moment` is the time in µs. The tokens have 16 digits, as the times
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
