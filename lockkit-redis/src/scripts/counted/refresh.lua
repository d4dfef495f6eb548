-- Keeps waiters of one client alive, and looks after names where leases have lapsed.
-- KEYS fence, queue, live, holders, grants of each name
-- ARGV PUBLISH or SPUBLISH, channels, then for each name the number of waiters, and for each of them waiter, liveness in ms
-- {now, {ms until the first lease ends or -1, 1 waits or 0 does not, …} for each name}
local now = clock()
local answer, arg = {now}, 3
for first = 1, #KEYS, 5 do
  fence_key, queue, live = KEYS[first], KEYS[first + 1], KEYS[first + 2]
  holders, grants = KEYS[first + 3], KEYS[first + 4]
  local seen, places, longest, last_of_queue = {0}, {}, 0, nil
  -- Nothing is written beside what a newer lockkit keeps: those who wait ask, and hear of it.
  local newer = is_newer(redis.pcall('GET', fence_key))
  if not newer then
    -- Where the queue was evicted and the other one was not, they have no places any more.
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
      -- All permits are free and can't be handed over: a key was lost, or there is no token left. They have to ask.
      for place = 2, #seen do seen[place] = 0 end
    end
    -- Where others must be looked at before anybody can be served, the next request does that, soon.
    seen[1] = more and 1 or first_lapse(now)
  end
  answer[#answer + 1] = seen
end
return answer
