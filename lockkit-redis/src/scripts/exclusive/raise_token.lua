-- Raises the token of a grant. Never lowers it.
-- KEYS lock, fence    ARGV owner, floor
-- Returns the token | -1 not held | -2 no token left | -3 newer
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then
  -- This write changes nothing. A primary that was demoted refuses it.
  local kept = redis.call('PTTL', KEYS[2])
  if kept ~= -1 then redis.call('PEXPIRE', KEYS[2], math.max(kept, 1)) end
  return -1
end
-- The same test as in `is_newer`.
if string.find(redis.call('GET', KEYS[2]) or '', '^lockkit/%d') then return -3 end
local floor = tonumber(ARGV[2])
local last, granted_to = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+):(.*)$')
local token, left = tonumber(last or 0), redis.call('PTTL', KEYS[1])
if granted_to == owner and token >= floor then
  -- A primary that was demoted refuses a write, and replicas confirm only writes.
  if left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
  return token
end
-- If our token was lost, or the key has another grant's token, our token is written anew.
token = math.max(token + 1, floor)
if token >= 9007199254740992 then return -2 end
-- The token is kept for a day after the lease, and after its own time, which may be far ahead.
local ahead = math.max(0, math.ceil((token - clock()) / 1000))
-- A full server refuses a script's first write if that may need memory, and no later one. So this
-- write goes first.
if left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
redis.call('SET', KEYS[2], digits(token) .. ':' .. owner, 'PX', ahead + math.max(0, left) + 86400000)
return token
