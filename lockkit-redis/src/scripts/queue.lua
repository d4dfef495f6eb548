-- Those who wait for a name, in both families.
--   queue  a zset of waiters, by their places: the times (µs) at which they came
--   live   a zset of the same waiters, by the times (µs) at which they count as dead
-- The first part of a waiter is its client: where its messages go, or - if it can only poll.
local queue, live

-- A waiter whose client has no connection is set aside: its place is so much later until the waiter asks again.
local aside = 2 ^ 52

-- A script holds all other clients up. So it looks at no more waiters than this, and the next request goes on.
local looks = 500

-- From format 2 on, a token begins with `lockkit/` and the format, whatever else is written where: then a newer lockkit keeps
-- this name, and what is here knows nothing of it. A key of another type is an error for who writes a token, and no mark.
local function is_newer(token)
  return type(token) == 'string' and string.find(token, '^lockkit/%d') ~= nil
end

local function forget(...)
  redis.call('ZREM', queue, ...)
  redis.call('ZREM', live, ...)
end

-- A full server refuses a script's first write if that may need memory, and none after another one. So where nothing grows,
-- this goes first, which does nothing.
local function write_though_full()
  redis.call('ZREM', live, '')
end

-- A user without rights on channels gets an error here: then the waiter finds out by itself.
local function tell(waiter, message, publish, channels)
  local client = string.match(waiter, '^[^:]*')
  if client ~= '-' then redis.pcall(publish, channels .. client, message) end
end

-- The first waiter who lives and whose client has a connection, or who asks in this very request. Those before it who died are
-- forgotten, and those without a connection are set aside. Without such a waiter nil, and whether all were looked at.
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
        -- Without the right to ask, all count as connected.
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
