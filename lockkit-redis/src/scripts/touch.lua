-- Writes a lock as it is. `left` is its time to live in ms, or negative if it never lapses. A
-- primary that was demoted refuses a write, and replicas confirm only writes. After this write, a
-- full server refuses no other one of the same script.
local function touch(lock, value, left)
  if not value then
    redis.call('DEL', lock)
  elseif left < 0 then
    redis.call('SET', lock, value)
  else
    redis.call('PEXPIRE', lock, math.max(left, 1))
  end
end
