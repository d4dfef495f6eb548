-- Raises the token of a grant. Never lowers it, and never gives two grants the same token. An owner
-- of all permits gets the floor itself, as with a mutex.
-- ARGV owner, floor
-- Returns the token | -1 not held | -2 no token left | -3 newer
local last = redis.call('GET', counter)
if is_newer(last) then return -3 end
local now = clock()
local grant = prune(now, ARGV[1])
if not grant then
  -- A primary that was demoted is empty for a while. It refuses this write, which changes nothing.
  redis.call('ZREM', live, ARGV[1])
  -- The last lease may have lapsed while claims wait.
  if limit and used == 0 then keep_limit() end
  return -1
end
local count, token = string.match(grant, '^(%d+):(%d+)$')
local floor, written = tonumber(ARGV[2]), tonumber(string.match(last or '', '^%d+')) or 0
local raised = tonumber(token)
if raised < floor then
  raised = floor
  if tonumber(count) ~= limit then
    -- Beside others, no other grant has the new token. The server may have lost its last token.
    local highest, stored = written, redis.call('HGETALL', grants)
    for i = 2, #stored, 2 do
      highest = math.max(highest, tonumber(string.match(stored[i], '^%d+:(%d+)$')) or 0)
    end
    raised = math.max(highest + 1, floor)
  end
  if raised >= 9007199254740992 then return -2 end
end
-- A primary that was demoted refuses a write, and replicas confirm only writes. After this write, a
-- full server refuses no other one.
local left = redis.call('PTTL', grants)
if left > 0 then redis.call('PEXPIRE', grants, left) end
if raised > written then redis.call('SET', counter, digits(raised)) end
if raised > tonumber(token) then redis.call('HSET', grants, ARGV[1], count .. ':' .. digits(raised)) end
return raised
