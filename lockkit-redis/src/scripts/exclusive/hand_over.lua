-- An exclusive lock: KEYS lock, fence, queue, live.
--   lock   a string, the owner; lapses with the lease
--   fence  a string, `fence:owner` of the last grant
--   queue  a zset of waiters, in the order in which they came
--   live   a zset of the same waiters, by the time (µs) at which they count as dead
-- A waiter is `client:claim window in ms:owner`. The client is where its messages go, or - if it can only poll.
local lock, fence_key, queue, live = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- From format 2 on, a fence begins with `lockkit/` and the format, whatever else is written where: then a newer lockkit keeps
-- this name, and what is here knows nothing of it. A key of another type is an error for who writes a fence, and no mark.
local function is_newer(fence)
  return type(fence) == 'string' and string.find(fence, '^lockkit/%d') ~= nil
end

-- A fence above all before it and not below the time, or nil if there is none left, or none for us.
local function next_fence(now)
  local last = redis.call('GET', fence_key)
  if is_newer(last) then return nil end
  local fence = math.max((last and tonumber(string.match(last, '^%d+')) or 0) + 1, now)
  return fence < 9007199254740992 and fence or nil
end

-- The fence is written before the lock: if it can't be, because its key is of another type, no lock may be left.
-- It is kept for a day after the lease, and after the fence's own time if the clock was set back since.
local function give(owner, fence, now, lease)
  local keep = math.ceil((fence - now) / 1000) + lease + 86400000
  redis.call('SET', fence_key, digits(fence) .. ':' .. owner, 'PX', keep)
  redis.call('SET', lock, owner, 'PX', lease)
end

local function forget(waiter)
  redis.call('ZREM', queue, waiter)
  redis.call('ZREM', live, waiter)
end

-- The queue is gone with its last waiter, also if that one died.
local function keep_queue(liveness)
  local keep = math.max(redis.call('PTTL', live), liveness)
  redis.call('PEXPIRE', queue, keep)
  redis.call('PEXPIRE', live, keep)
end

-- Gives a free lock to the first waiter who lives and hears of it, for the claim window, and answers that waiter; nil if
-- there is none. One whose client has no connection now is passed over and keeps its place; those who are asking in this
-- very request need not be told.
local function hand_over(now, fence, publish, channels, asking)
  local place, given = 0, false
  while fence do
    local waiter = redis.call('ZRANGE', queue, place, place)[1]
    if not waiter then break end
    local until_dead = redis.call('ZSCORE', live, waiter)
    if not until_dead or tonumber(until_dead) < now then
      forget(waiter)
    else
      local client, window, owner = string.match(waiter, '^([^:]*):(%d+):(.*)$')
      give(owner, fence, now, window)
      given = true
      -- Told after all is written, as a script can be refused a write. A user without rights on channels gets an error
      -- here: then the waiter finds out by itself.
      local heard = asking[waiter] or client == '-' or redis.pcall(publish, channels .. client,
        string.sub(owner, 1, 32) .. ' ' .. digits(fence) .. ' ' .. digits(now) .. ' ' .. window)
      if heard ~= 0 then
        forget(waiter)
        return waiter
      end
      place = place + 1
    end
  end
  if given then redis.call('DEL', lock) end
end
