-- Keeps waiters of one client alive, and looks after names where leases have lapsed.
-- KEYS fence, queue, live, holders, grants of each name
-- ARGV PUBLISH or SPUBLISH, channels, then for each name the number of waiters, and for each of them waiter, liveness in ms
-- {now, {ms until the first lease ends or -1, 1 waits or 0 does not, …} for each name}
local now = clock()
local answer, arg = {now}, 3
for first = 1, #KEYS, 5 do
  fence_key, queue, live = KEYS[first], KEYS[first + 1], KEYS[first + 2]
  holders, grants = KEYS[first + 3], KEYS[first + 4]
  local seen, places, longest = {0}, {}, 0
  -- Nothing is written beside what a newer lockkit keeps: those who wait ask, and hear of it.
  local newer = is_newer(redis.pcall('GET', fence_key))
  local last = arg + 2 * tonumber(ARGV[arg])
  while arg < last do
    local waiter = ARGV[arg + 1]
    seen[#seen + 1] = newer and 0 or redis.call('ZADD', live, 'XX', 'CH', now + ARGV[arg + 2] * 1000, waiter)
    places[waiter] = #seen
    longest = math.max(longest, tonumber(ARGV[arg + 2]))
    arg = arg + 2
  end
  arg = arg + 1
  if newer then
    seen[1] = -1
  else
    keep_queue(longest)
    prune(now, '')
    if limit then
      local _, served = hand_over(now, ARGV[1], ARGV[2], places)
      for waiter in pairs(served) do
        if places[waiter] then seen[places[waiter]] = 0 end
      end
    end
    if used == 0 then
      -- All permits are free and can't be handed over: a key was lost, or there is no fence left. They have to ask.
      for place = 2, #seen do seen[place] = 0 end
    end
    seen[1] = first_lapse(now)
  end
  answer[#answer + 1] = seen
end
return answer
