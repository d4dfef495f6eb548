-- An exclusive lock: KEYS lock, fence, queue, live.
--   lock   a string, the owner; lapses with the lease
--   fence  a string, `token:owner` of the last grant
-- A waiter is `client:claim window in ms:owner`.
local lock, fence_key = KEYS[1], KEYS[2]
queue, live = KEYS[3], KEYS[4]

-- Returns a token above all earlier ones and not below the time. Returns nil if no token is left,
-- or if a newer lockkit keeps the name.
local function next_token(now)
  local last = redis.call('GET', fence_key)
  if is_newer(last) then return nil end
  local token = math.max((last and tonumber(string.match(last, '^%d+')) or 0) + 1, now)
  return token < 9007199254740992 and token or nil
end

-- The token is written before the lock. If the token's key is of another type, that write fails and
-- leaves no lock. The token is kept for a day after the lease. If the clock was set back since, it
-- is also kept for a day after its own time.
local function give(owner, token, now, lease)
  local keep = math.ceil((token - now) / 1000) + lease + 86400000
  redis.call('SET', fence_key, digits(token) .. ':' .. owner, 'PX', keep)
  redis.call('SET', lock, owner, 'PX', lease)
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
  give(owner, token, now, window)
  if not asking[waiter] then
    local message = string.sub(owner, 1, 32) .. ' ' .. digits(token) .. ' ' .. digits(now) .. ' ' .. window
    tell(waiter, message, publish, channels)
  end
  return waiter, true
end
