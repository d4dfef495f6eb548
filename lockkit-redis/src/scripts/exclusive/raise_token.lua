-- Raises the token of a grant. Never lowers it.
-- KEYS lock, counter    ARGV owner, floor
-- Returns the token | -1 not held | -3 newer
local value, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local token, owner = string.match(value or '', '^(%d+):(.*)$')
local ours = owner == ARGV[1]
local last = ours and redis.call('GET', KEYS[2]) or '0'
if is_newer(last) then return -3 end
touch(KEYS[1], value, left)
if not ours then return -1 end
local raised = math.max(tonumber(token), tonumber(ARGV[2]))
-- The server may have lost its last token.
if raised > (tonumber(string.match(last, '^%d+')) or 0) then
  redis.call('SET', KEYS[2], digits(raised))
end
if raised > tonumber(token) then
  redis.call('SET', KEYS[1], digits(raised) .. ':' .. owner)
  if left >= 0 then redis.call('PEXPIRE', KEYS[1], math.max(left, 1)) end
end
return raised
