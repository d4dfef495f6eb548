-- An exclusive lock: KEYS lock, counter, queue, live.
--   lock   a string, `token:owner`; lapses with the lease
-- A waiter is `client:claim window in ms:owner`.
local lock = KEYS[1]
counter, queue, live = KEYS[2], KEYS[3], KEYS[4]

-- Returns the owner and the token of the lock. The owner is false if the lock is free, and empty
-- if the lock is another program's.
local function holder()
  local value = redis.call('GET', lock)
  if not value then return false end
  local token, owner = string.match(value, '^(%d+):(.*)$')
  return owner or '', token
end

-- The counter is written first. If a full server refuses that, there is no lock.
local function give(owner, token, lease)
  redis.call('SET', counter, digits(token))
  redis.call('SET', lock, digits(token) .. ':' .. owner, 'PX', lease)
end

-- The queue lapses with its last waiter, even if that waiter died.
local function keep_queue(liveness)
  local keep = math.max(redis.call('PTTL', live), liveness)
  redis.call('PEXPIRE', queue, keep)
  redis.call('PEXPIRE', live, keep)
end

-- Gives a lock to the first waiter that lives and can be reached, for the claim window. Returns
-- that waiter. Without such a waiter, returns nil, and whether all were looked at. A waiter that
-- asks in this very request gets no message.
local function hand_over(now, token, publish, channels, asking)
  if not token then return nil, true end
  local waiter, all = first_waiter(now, publish, channels, asking)
  if not waiter then return nil, all end
  local window, owner = string.match(waiter, '^[^:]*:(%d+):(.*)$')
  -- The waiter is forgotten first, because after such a write a full server does not refuse the
  -- next ones.
  forget(waiter)
  give(owner, token, window)
  if not asking[waiter] then
    local message = string.sub(owner, 1, 32) .. ' ' .. digits(token) .. ' ' .. digits(now) .. ' ' .. window
    tell(waiter, message, publish, channels)
  end
  return waiter, true
end
