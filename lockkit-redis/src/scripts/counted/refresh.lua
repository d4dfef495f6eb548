-- Keeps the waiters of one client alive, and hands over permits of leases that have lapsed.
-- KEYS counter, queue, live, holders, grants of each name
-- ARGV PUBLISH or SPUBLISH, channels, then for each name the number of waiters, and for each waiter
--   its text and its liveness in ms
-- Returns {now, {ms until the first lease ends or -1, 1 waits or 0 does not, …} for each name}
local now = clock()
local answer, arg = {now}, 3
for first = 1, #KEYS, 5 do
  counter, queue, live = KEYS[first], KEYS[first + 1], KEYS[first + 2]
  holders, grants = KEYS[first + 3], KEYS[first + 4]
  local seen, places, longest, last_of_queue = {0}, {}, 0, nil
  -- Nothing is written beside the data of a newer lockkit. The waiters must ask, and get that
  -- error.
  local newer = is_newer(redis.pcall('GET', counter))
  if not newer then
    -- If the queue was evicted and the other key was not, the waiters have no places any more.
    last_of_queue = last_place()
    write_though_full()
  end
  local last = arg + 2 * tonumber(ARGV[arg])
  while arg < last do
    local waiter, liveness = ARGV[arg + 1], tonumber(ARGV[arg + 2])
    local alive = last_of_queue and redis.call('ZADD', live, 'XX', 'CH', now + liveness * 1000, waiter) or 0
    if last_of_queue and last_of_queue >= aside then come_back(waiter) end
    seen[#seen + 1] = alive
    places[waiter] = #seen
    longest = math.max(longest, liveness)
    arg = arg + 2
  end
  arg = arg + 1
  if newer then
    seen[1] = -1
  else
    keep_queue(longest)
    forget_lapsed(now)
    prune(now, '')
    local more = false
    if limit then
      local _, served
      _, served, more = hand_over(now, ARGV[1], ARGV[2], places)
      for waiter in pairs(served) do
        if places[waiter] then seen[places[waiter]] = 0 end
      end
    end
    if used == 0 and not more then
      -- All permits are free and can't be handed over: a key was lost, or there is no token left.
      -- The waiters have to ask.
      for place = 2, #seen do seen[place] = 0 end
    end
    -- If other waiters must be looked at first, the next request does that, soon.
    seen[1] = more and 1 or first_lapse(now)
  end
  answer[#answer + 1] = seen
end
return answer
