-- Keeps waiters of one client alive, and looks after names whose lock has lapsed.
-- KEYS lock, fence, queue, live of each name
-- ARGV PUBLISH or SPUBLISH, channels, then for each name the number of waiters, and for each of them waiter, liveness in ms
-- {now, {ttl, 1 waits or 0 must ask, …} for each name}
local now = clock()

-- Fills in, for the waiters in ARGV from `arg` to `last`, who waits, and answers the lock's ttl.
local function look_after(arg, last, seen)
  -- Evicted without the other one: they have no places any more.
  local queued, places, longest = redis.call('EXISTS', queue) == 1, {}, 0
  for at = arg, last, 2 do
    local waiter, liveness = ARGV[at], tonumber(ARGV[at + 1])
    local alive = redis.call('ZADD', live, 'XX', 'CH', now + liveness * 1000, waiter)
    seen[#seen + 1] = queued and alive or 0
    places[waiter] = #seen
    longest = math.max(longest, liveness)
  end
  keep_queue(longest)
  local ttl = redis.call('PTTL', lock)
  if ttl == -2 and queued then
    local winner = hand_over(now, next_fence(now), ARGV[1], ARGV[2], places)
    if winner and places[winner] then seen[places[winner]] = 0 end
    ttl = redis.call('PTTL', lock)
  end
  return ttl
end

local answer, arg = {now}, 3
for first = 1, #KEYS, 4 do
  lock, fence_key, queue, live = KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3]
  local seen, waiters = {0}, tonumber(ARGV[arg])
  local fine, ttl = pcall(look_after, arg + 1, arg + 2 * waiters, seen)
  if not fine then
    -- A key of another type is the trouble of one name: its waiters get the error when they ask for themselves.
    local text = type(ttl) == 'table' and ttl.err or ttl
    if not string.find(text, 'WRONGTYPE', 1, true) then return redis.error_reply(text) end
    ttl = -1
    for place = 2, waiters + 1 do seen[place] = 0 end
  end
  seen[1] = ttl
  answer[#answer + 1] = seen
  arg = arg + 2 * waiters + 1
end
return answer
