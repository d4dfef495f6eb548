-- The places of waiters, for the scripts that waiters run; see queue.lua.

-- Forgets some of the dead waiters, so that they do not pile up while the lock is held.
local function forget_lapsed(now)
  -- A count below 0 would mean all of them.
  local most = math.max(0, math.min(looks, 100))
  local lapsed = redis.call('ZRANGEBYSCORE', live, '-inf', '(' .. digits(now), 'LIMIT', 0, most)
  looks = looks - #lapsed
  if #lapsed > 0 then forget(unpack(lapsed)) end
end

-- The place of the last waiter, or nil if there is none.
local function last_place()
  return tonumber(redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or nil)
end

-- A place behind all others. `last` is the last place so far.
local function new_place(now, last)
  if last and last >= aside then
    local set_aside = redis.call('ZCOUNT', queue, digits(aside), '+inf')
    local other = redis.call('ZRANGE', queue, -set_aside - 1, -set_aside - 1, 'WITHSCORES')[2]
    last = math.max(last - aside, tonumber(other or 0))
  end
  return digits(math.max(now, (last or 0) + 1))
end

-- Returns the place of a waiter, or nil if it has none. A waiter that was set aside gets its former
-- place back.
local function come_back(waiter)
  local place = tonumber(redis.call('ZSCORE', queue, waiter) or nil)
  if place and place >= aside then
    write_though_full()
    redis.call('ZADD', queue, digits(place - aside), waiter)
  end
  return place
end
