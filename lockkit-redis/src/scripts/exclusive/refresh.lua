-- Keeps the waiters of one client alive, and hands over the locks that have lapsed.
-- KEYS lock, counter, queue, live of each name
-- ARGV PUBLISH or SPUBLISH, channels, then for each name the number of waiters, and for each waiter
--   its text and its liveness in ms
-- Returns {now, {ttl, 1 waits or 0 must ask, …} for each name}
local now = clock()
local answer, arg = {now}, 3
for first = 1, #KEYS, 4 do
  lock, counter, queue, live = KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3]
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
  local ttl, all = redis.call('PTTL', lock), true
  if last_of_queue then
    keep_queue(longest)
    forget_lapsed(now)
    if ttl == -2 then
      local winner
      winner, all = hand_over(now, next_token(now), ARGV[1], ARGV[2], places)
      if winner and places[winner] then seen[places[winner]] = 0 end
      ttl = redis.call('PTTL', lock)
    end
  end
  if not all then
    -- Other waiters must be looked at first. The next request does that, soon.
    ttl = 1
  elseif ttl == -2 then
    -- The lock is free and can't be handed over: a key of the queue was lost, or there is no token
    -- left. The waiters have to ask.
    for place = 2, #seen do seen[place] = 0 end
  end
  seen[1] = ttl
  answer[#answer + 1] = seen
end
return answer
