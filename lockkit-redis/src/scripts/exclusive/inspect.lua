-- KEYS lock, fence, live    {now, ttl, owner, token, waiters}; owner and token are false if there is none
local now = clock()
-- A primary that was demoted is found out by a write, which does nothing.
redis.call('ZREM', KEYS[3], 'none')
local waiters = redis.call('ZCOUNT', KEYS[3], digits(now), '+inf')
return {now, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), waiters}
