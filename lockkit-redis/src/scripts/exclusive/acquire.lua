-- One attempt of one owner.
-- ARGV owner, lease in ms, not_after in µs, waiter, 1 to wait in the queue, liveness in ms, PUBLISH
--   or SPUBLISH, channels
-- {0, now, ttl} busy | {1, now, lease, token} granted | {2, now} too late, nothing done | {3, now}
--   no token left | {5, now} a newer lockkit keeps the name
local now = clock()
if now > tonumber(ARGV[3]) then return {2, now} end
if is_newer(redis.call('GET', counter)) then return {5, now} end
local lease, waiter, waits = tonumber(ARGV[2]), ARGV[4], ARGV[5] == '1'

local owner, token = holder()
if owner == ARGV[1] then
  -- An earlier reply was lost, or the lock was handed over to this owner. The lease starts again,
  -- but it never gets shorter. A full server does not refuse this write.
  local left = math.max(redis.call('PTTL', lock), lease)
  redis.call('PEXPIRE', lock, left)
  return {1, now, left, tonumber(token)}
end

local last = (waits or not owner) and last_place()
local waited = last and waiter ~= '' and come_back(waiter)
if waited and waits then
  write_though_full()
  redis.call('ZADD', live, now + ARGV[6] * 1000, waiter)
  -- Afterwards, because the server may have evicted the key.
  keep_queue(tonumber(ARGV[6]))
end

local all = true
if not owner then
  token = next_token(now)
  if not token then return {3, now} end
  local first
  if last then first, all = hand_over(now, token, ARGV[7], ARGV[8], {[waiter] = true}) end
  if first == waiter or all and not first then
    give(ARGV[1], token, lease)
    return {1, now, lease, token}
  end
  -- Some waiters may be set aside now.
  if waits and not waited then last = last_place() end
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
  redis.call('ZREM', live, ARGV[1])
end
-- If other waiters must be looked at first, the next request does that, soon.
return {0, now, all and redis.call('PTTL', lock) or 1}
