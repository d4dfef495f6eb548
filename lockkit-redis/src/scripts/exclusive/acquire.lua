-- One attempt of one owner.
-- ARGV owner, lease in ms, not_after in µs, waiter, 1 to wait in the queue, liveness in ms, PUBLISH or SPUBLISH, channels
-- {0, now, ttl} busy | {1, now, lease, fence} granted | {2, now} too late, nothing done | {3, now} no fence left |
-- {5, now} a newer lockkit keeps the name
local now = clock()
if now > tonumber(ARGV[3]) then return {2, now} end
if is_newer(redis.call('GET', fence_key)) then return {5, now} end
local lease, waiter = tonumber(ARGV[2]), ARGV[4]

local owner = redis.call('GET', lock)
if owner == ARGV[1] then
  -- An earlier reply was lost, or the lock was handed over to us. The lease starts again, but it never gets shorter.
  local last = redis.call('GET', fence_key)
  local fence, granted_to = string.match(last or '', '^(%d+):(.*)$')
  local left = math.max(redis.call('PTTL', lock), lease)
  if granted_to == owner then
    -- Nothing that a full server refuses.
    redis.call('PEXPIRE', lock, left)
  else
    fence = next_fence(now)
    if not fence then return {3, now} end
    give(owner, fence, now, left)
  end
  return {1, now, left, tonumber(fence)}
end

if not owner then
  local fence = next_fence(now)
  if not fence then return {3, now} end
  local first = redis.call('EXISTS', queue) == 1 and hand_over(now, fence, ARGV[7], ARGV[8], {[waiter] = true})
  if not first or first == waiter then
    give(ARGV[1], fence, now, lease)
    return {1, now, lease, fence}
  end
end

if ARGV[5] == '1' then
  -- Both keys are looked at before the queue is written, so that none of another type leaves it without an end.
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', live, now + ARGV[6] * 1000, waiter)
  redis.call('ZADD', queue, 'NX', math.max(now, (tonumber(last) or 0) + 1), waiter)
  keep_queue(tonumber(ARGV[6]))
end
return {0, now, redis.call('PTTL', lock)}
