-- Raises the token of a grant. Never lowers it.
-- KEYS lock, fence    ARGV owner, floor    token | -1 not held | -2 no token left | -3 newer
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then
  -- A primary that was demoted is found out by a write, which does nothing.
  local kept = redis.call('PTTL', KEYS[2])
  if kept ~= -1 then redis.call('PEXPIRE', KEYS[2], math.max(kept, 1)) end
  return -1
end
-- As `is_newer` has it.
if string.find(redis.call('GET', KEYS[2]) or '', '^lockkit/%d') then return -3 end
local floor = tonumber(ARGV[2])
local last, granted_to = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+):(.*)$')
local token, left = tonumber(last or 0), redis.call('PTTL', KEYS[1])
if granted_to == owner and token >= floor then
  -- A primary that was demoted refuses a write, and replicas confirm nothing but writes.
  if left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
  return token
end
-- If it was lost, or is another one's now, then ours is written anew.
token = math.max(token + 1, floor)
if token >= 9007199254740992 then return -2 end
-- For a day after the lease, and after the token's own time, which may be far ahead.
local ahead = math.max(0, math.ceil((token - clock()) / 1000))
-- A full server refuses a script's first write if that may need memory, and no later one: so this goes first.
if left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
redis.call('SET', KEYS[2], digits(token) .. ':' .. owner, 'PX', ahead + math.max(0, left) + 86400000)
return token
