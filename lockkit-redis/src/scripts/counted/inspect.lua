-- KEYS counter, queue, live, holders, grants
-- Returns {now, limit, used, waiters, then owner, end of the lease in µs, count, token of each
--   holder}; limit is false if there is none. Returns {now, counter} for a counter of a newer lockkit
local now, last = clock(), redis.pcall('GET', KEYS[1])
if is_newer(last) then return {now, last} end
-- This write changes nothing. A primary that was demoted refuses it.
redis.call('ZREM', KEYS[3], 'none')
local answer = {now, tonumber(redis.call('HGET', KEYS[5], 'limit') or nil) or false, 0}
answer[4] = redis.call('ZCOUNT', KEYS[3], digits(now), '+inf')
local holders = redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. digits(now), '+inf', 'WITHSCORES')
for i = 1, #holders, 2 do
  local count, token = string.match(redis.call('HGET', KEYS[5], holders[i]) or '', '^(%d+):(%d+)$')
  if count then
    answer[3] = answer[3] + count
    local next = #answer
    answer[next + 1], answer[next + 2] = holders[i], tonumber(holders[i + 1])
    answer[next + 3], answer[next + 4] = tonumber(count), tonumber(token)
  end
end
return answer
