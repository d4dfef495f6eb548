-- KEYS lock, fence    {now, ttl, owner, fence}, the last two false if there is none
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
return {now, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}
