-- KEYS lock, counter, live
-- Returns {now, ttl, lock, counter, waiters}; lock and counter are false if they do not exist
local now = clock()
-- This write changes nothing. A primary that was demoted refuses it.
redis.call('ZREM', KEYS[3], 'none')
local waiters = redis.call('ZCOUNT', KEYS[3], digits(now), '+inf')
return {now, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), waiters}
