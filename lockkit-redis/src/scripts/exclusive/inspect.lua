-- KEYS lock, fence, live
-- Returns {now, ttl, owner, token, waiters}; owner and token are false if there is none
local now = clock()
-- This write changes nothing. A primary that was demoted refuses it.
redis.call('ZREM', KEYS[3], 'none')
local waiters = redis.call('ZCOUNT', KEYS[3], digits(now), '+inf')
return {now, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), waiters}
