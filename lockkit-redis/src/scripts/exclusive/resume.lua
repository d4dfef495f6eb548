-- Makes an owner the holder of a former owner's grant, with the same token. Never takes a free lock.
-- KEYS lock, counter
-- ARGV owner, lease in ms, not_after in µs, id of the former owner, its token
-- {0, now, -1} there is no such grant | {1, now, lease, token} granted | {2, now} too late, nothing
--   done | {5, now} a newer lockkit keeps the name
local now = clock()
if now > tonumber(ARGV[3]) then return {2, now} end
if is_newer(redis.call('GET', KEYS[2])) then return {5, now} end
local value, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local token, owner = string.match(value or '', '^(%d+):(.*)$')
-- An owner's id comes before its label. The token may have been raised after the ticket was made.
local there = owner == ARGV[1]
  or owner and string.sub(owner, 1, 32) == ARGV[4] and tonumber(token) >= tonumber(ARGV[5])
touch(KEYS[1], value, left)
if not there then return {0, now, -1} end
-- The lease starts again, but it never gets shorter.
local lease = math.max(left, tonumber(ARGV[2]))
redis.call('SET', KEYS[1], token .. ':' .. ARGV[1], 'PX', lease)
return {1, now, lease, tonumber(token)}
