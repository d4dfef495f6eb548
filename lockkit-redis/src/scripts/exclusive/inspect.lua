-- KEYS lock, fence, live    {now, ttl, owner, fence, waiters}; owner and fence are false if there is none
local now = clock()
local waiters = redis.call('ZCOUNT', KEYS[3], digits(now), '+inf')
return {now, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), waiters}
