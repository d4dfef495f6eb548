-- One attempt of one owner.
-- ARGV owner, lease in ms, not_after in µs, waiter, 1 to wait in the queue, liveness in ms, PUBLISH
--   or SPUBLISH, channels, count, limit
-- {0, now, ms until the first lease ends or -1} busy | {1, now, lease, token} granted | {2, now}
--   too late, nothing done | {3, now} no token left | {4, now, limit} the name has another limit |
--   {5, now} a newer lockkit keeps the name
-- acquire_free.lua has read the time and the last token, and refuses what comes too late.
if is_newer(last) then return {5, now} end
local owner, lease, waiter, waits = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[5] == '1'
local count, wanted = tonumber(ARGV[9]), tonumber(ARGV[10])

local grant, others_first, more = prune(now, owner), false, false
local last = not grant and last_place()
local waited = last and waiter ~= '' and come_back(waiter)
if waited and waits then
  write_though_full()
  redis.call('ZADD', live, now + ARGV[6] * 1000, waiter)
  -- Afterwards, because the server may have evicted the key.
  keep_queue(tonumber(ARGV[6]))
end
if last then
  limit = limit or wanted
  local _
  others_first, _, more = hand_over(now, ARGV[7], ARGV[8], {[waiter] = true})
  grant = redis.call('HGET', grants, owner)
  -- Some waiters may be set aside now.
  if not grant and waits and not waited then last = last_place() end
end
if grant then
  -- An earlier reply was lost, or the permits were handed over to this owner.
  local left = restart(owner, now, lease)
  if left then return {1, now, left, tonumber(string.match(grant, '%d+$'))} end
  -- The lease is gone, and the grant is not: the data was damaged. The next attempt begins anew.
  take(owner, grant)
  if used == 0 then keep_limit() end
  return {0, now, 1}
end

if limit and limit ~= wanted and (used > 0 or redis.call('EXISTS', queue) == 1) then
  -- This write changes nothing. A primary that was demoted refuses it.
  redis.call('ZREM', live, owner)
  return {4, now, limit}
end
limit = wanted
if used + count <= limit then
  local token = next_token(now)
  if not token then return {3, now} end
  if not others_first then
    give(owner, count, token, now, lease)
    return {1, now, lease, token}
  end
end

if waits and not waited then
  -- Both keys are read or written before the queue is written. So a key of another type cannot
  -- leave the queue without an expiry.
  redis.call('ZADD', live, now + ARGV[6] * 1000, waiter)
  redis.call('ZADD', queue, 'NX', new_place(now, last), waiter)
  keep_queue(tonumber(ARGV[6]))
  -- If no claim waits for long, only this forgets waiters that died after they were set aside.
  forget_lapsed(now)
else
  -- This write changes nothing. A primary that was demoted refuses it.
  redis.call('ZREM', live, owner)
end
-- If other waiters must be looked at first, the next request does that, soon.
return {0, now, more and 1 or first_lapse(now)}
