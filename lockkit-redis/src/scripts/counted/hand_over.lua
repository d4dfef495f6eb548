-- The permits of one name: KEYS counter, queue, live, holders, grants.
--   holders  a zset of owners, by the end of their lease (µs)
--   grants   a hash: owner -> `count:token`, used -> the sum of these counts, limit -> how many
--            permits there are
-- A waiter is `client:claim window in ms:count:owner`.
local holders, grants = KEYS[4], KEYS[5]
counter, queue, live = KEYS[1], KEYS[2], KEYS[3]
local used, limit

-- A script holds up all other clients. So it serves no more waiters than this, and the next request
-- continues.
local most_served = 64

-- Holders and grants lapse with the last lease, even if their owners died. The limit does not lapse
-- before the last waiter.
local function keep_grants(lease)
  redis.call('PEXPIRE', holders, lease)
  local keep = math.max(lease, redis.call('PTTL', queue))
  if redis.call('PTTL', grants) < keep then redis.call('PEXPIRE', grants, keep) end
end

-- The counter is written first. If a full server refuses that, no permit is used up.
local function give(owner, count, token, now, lease)
  local kept = used > 0 and redis.call('PTTL', holders) or 0
  redis.call('SET', counter, digits(token))
  redis.call('ZADD', holders, now + lease * 1000, owner)
  used = used + count
  redis.call('HSET', grants, owner, count .. ':' .. digits(token), 'used', used, 'limit', limit)
  if kept < lease then keep_grants(lease) end
end

-- Takes the permits of an owner away.
local function take(owner, grant)
  used = used - tonumber(string.match(grant, '^%d+'))
  if used == 0 then
    redis.call('DEL', holders, grants)
  else
    redis.call('ZREM', holders, owner)
    redis.call('HDEL', grants, owner)
    redis.call('HSET', grants, 'used', used)
  end
end

-- Reads the name and removes the grants that have lapsed. Returns the grant of an owner, or false
-- if it has none.
local function prune(now, owner)
  local stored = redis.call('HMGET', grants, 'used', 'limit', owner)
  used, limit = tonumber(stored[1] or 0), stored[2] and tonumber(stored[2]) or nil
  if used == 0 then return false end
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
  if not first then
    -- The last lease has lapsed and the limit is kept for waiters, or the server has evicted one of
    -- the two keys.
    redis.call('DEL', grants)
    used = 0
    return false
  end
  if tonumber(first) > now then return stored[3] end
  for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', holders, '-inf', now)) do
    take(lapsed, redis.call('HGET', grants, lapsed) or '0')
  end
  return redis.call('HGET', grants, owner)
end

-- Starts the lease of a holder again. Returns how much of it is left, which is never less than
-- before. Returns nil if the grant is gone.
local function restart(owner, now, lease)
  local deadline = tonumber(redis.call('ZSCORE', holders, owner) or 0)
  if deadline <= now or redis.call('HEXISTS', grants, owner) == 0 then return nil end
  local kept_until = math.max(deadline, now + lease * 1000)
  local left = math.floor((kept_until - now) / 1000)
  local longest = redis.call('PTTL', holders)
  -- This writes in any case, and a full server does not refuse it. Then it does not refuse the next
  -- write either.
  if longest < left then keep_grants(left) else redis.call('PEXPIRE', holders, longest) end
  if kept_until > deadline then redis.call('ZADD', holders, kept_until, owner) end
  return left
end

-- In how many ms the first lease ends, or -1 if there is none.
local function first_lapse(now)
  local deadline = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
  return deadline and math.ceil((tonumber(deadline) - now) / 1000) or -1
end

-- The queue lapses with its last waiter, even if that waiter died. The limit is kept as long.
local function keep_queue(liveness)
  local keep = math.max(redis.call('PTTL', live), liveness)
  redis.call('PEXPIRE', queue, keep)
  redis.call('PEXPIRE', live, keep)
  if redis.call('PTTL', grants) < keep then redis.call('PEXPIRE', grants, keep) end
end

-- Keeps the limit as long as the queue. Without a queue, it ends with the last holder.
local function keep_limit()
  local keep = redis.call('PTTL', queue)
  if keep <= 0 then
    redis.call('DEL', grants)
  else
    redis.call('HSET', grants, 'used', 0, 'limit', limit)
    redis.call('PEXPIRE', grants, keep)
  end
end

-- Gives free permits to the first waiters that live and can be reached, each for its claim window.
-- Stops at the first waiter that needs more permits than are free: no claim passes it, even with
-- less. A waiter that asks in this very request gets no message.
-- Returns whether a waiter may be there that no claim may pass, and the set of the waiters that
-- were served. The third value is whether others must be looked at before any other claim can be
-- served.
local function hand_over(now, publish, channels, asking)
  local served, count_served = {}, 0
  local stopped, more = true, false
  while used < limit do
    local waiter, all = first_waiter(now, publish, channels, asking)
    if not waiter then
      stopped, more = not all, not all
      break
    end
    local window, count, owner = string.match(waiter, '^[^:]*:(%d+):(%d+):(.*)$')
    local token = used + count <= limit and next_token(now)
    if not token then break end
    local id = string.sub(owner, 1, 32)
    if count_served == most_served then
      -- The waiter's request serves the next ones.
      tell(waiter, id, publish, channels)
      break
    end
    -- The waiter is forgotten first, because after such a write a full server does not refuse the
    -- next ones.
    forget(waiter)
    give(owner, tonumber(count), token, now, tonumber(window))
    if not asking[waiter] then
      local message = id .. ' ' .. digits(token) .. ' ' .. digits(now) .. ' ' .. window
      tell(waiter, message, publish, channels)
    end
    served[waiter] = true
    count_served = count_served + 1
  end
  if used == 0 then keep_limit() end
  return stopped, served, more
end

-- Serves the waiters, after a grant was given back or a waiter left.
local function serve(now, publish, channels)
  if not limit then return end
  if redis.call('EXISTS', queue) == 1 then
    hand_over(now, publish, channels, {})
  elseif used == 0 then
    redis.call('DEL', grants)
  end
end
