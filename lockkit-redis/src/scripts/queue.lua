-- The waiters for a name, in both families.
--   queue  a zset of waiters, by their places: the times (µs) at which they came
--   live   a zset of the same waiters, by the times (µs) at which they count as dead
-- The first part of a waiter is its client. It names the channel for messages, or is - if the
-- waiter can only poll.
local queue, live

-- A waiter whose client has no connection is set aside. Its place is this much later until the
-- waiter asks again.
local aside = 2 ^ 52

-- A script holds up all other clients. So it looks at no more waiters than this, and the next
-- request continues.
local looks = 500

local function forget(...)
  redis.call('ZREM', queue, ...)
  redis.call('ZREM', live, ...)
end

-- A full server refuses a script's first write if that may need memory, and no write after another
-- one. So a script whose writes need no memory calls this first, which does nothing.
local function write_though_full()
  redis.call('ZREM', live, '')
end

-- A user without rights on channels gets an error here. Then the waiter learns the news by polling.
local function tell(waiter, message, publish, channels)
  local client = string.match(waiter, '^[^:]*')
  if client ~= '-' then redis.pcall(publish, channels .. client, message) end
end

-- Returns the first waiter that lives and whose client has a connection, or that asks in this very
-- request. Forgets the dead waiters before it, and sets those without a connection aside. Without
-- such a waiter, returns nil, and whether all were looked at.
local deaf = {['-'] = false}
local function first_waiter(now, publish, channels, asking)
  local size = 1
  while looks > 0 do
    local page, dead, away, first = redis.call('ZRANGE', queue, 0, size - 1, 'WITHSCORES'), {}, {}, nil
    for at = 1, #page, 2 do
      local waiter, place = page[at], tonumber(page[at + 1])
      if place >= aside then break end
      looks = looks - 1
      local client = string.match(waiter, '^[^:]*')
      if deaf[client] == nil and not asking[waiter] then
        -- Without the right to ask, all clients count as connected.
        local command = publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
        deaf[client] = redis.pcall('PUBSUB', command, channels .. client)[2] == 0
      end
      if deaf[client] and not asking[waiter] then
        away[#away + 1] = digits(place + aside)
        away[#away + 1] = waiter
      elseif tonumber(redis.call('ZSCORE', live, waiter) or 0) < now then
        dead[#dead + 1] = waiter
      else
        first = waiter
        break
      end
    end
    if #dead > 0 then forget(unpack(dead)) end
    if #away > 0 then
      write_though_full()
      redis.call('ZADD', queue, unpack(away))
    end
    if first or #dead + #away / 2 < size then return first, true end
    size = 100
  end
  return nil, false
end
