-- Frees the grant with this token. A lock whose owner is not the one that the fence was given to is left alone.
-- KEYS lock, fence    ARGV token, channel    1 freed | 0 there is no such grant
local owner = redis.call('GET', KEYS[1])
if not owner or redis.call('GET', KEYS[2]) ~= ARGV[1] .. ':' .. owner then return 0 end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[2], '')
return 1
