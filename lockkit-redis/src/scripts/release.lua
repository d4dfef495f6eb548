-- Frees a lock if it is the owner's, and wakes one waiter of each process.
-- KEYS lock    ARGV owner, channel, until when an earlier request of this owner may still arrive (µs), or 0
-- 1 freed | 0 gone | 2 someone else's | -1 done, but an earlier request may still arrive
local owner = redis.call('GET', KEYS[1])
local answer = owner and 2 or 0
if owner == ARGV[1] then
  redis.call('DEL', KEYS[1])
  -- A user without rights on channels still releases; its waiters poll.
  redis.pcall('PUBLISH', ARGV[2], '')
  answer = 1
end
if ARGV[3] ~= '0' then
  local time = redis.call('TIME')
  if time[1] * 1000000 + time[2] <= tonumber(ARGV[3]) then answer = -1 end
end
return answer
