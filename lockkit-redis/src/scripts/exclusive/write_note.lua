-- Writes the note beside a lock, for its holder. Never replaces a newer note by an older one.
-- KEYS lock, note    ARGV owner, not_after in µs, revision, text
--   note   a hash: `revision`, in decimal digits, and `text`; it never lapses. From format 2 on
--   there is a `format`, too
-- {0, now} not held | {1, now} written | {2, now} too late, nothing done | {3, now} another note of
--   this revision, or a later one | {4, now} a newer lockkit's
local now = clock()
if now > tonumber(ARGV[2]) then return {2, now} end
local owner = string.match(redis.call('GET', KEYS[1]) or '', '^%d+:(.*)$')
if owner ~= ARGV[1] then
  -- This write changes nothing. A primary that was demoted refuses it.
  redis.call('HDEL', KEYS[2], 'none')
  return {0, now}
end
local stored = redis.call('HMGET', KEYS[2], 'revision', 'text', 'format')
if stored[3] then return {4, now} end
local last, text = stored[1] or '0', stored[2] or ''
-- Compared as texts, because a number of Lua is exact only up to 2^53.
local rises = #ARGV[3] > #last or (#ARGV[3] == #last and ARGV[3] > last)
if not rises and (ARGV[3] ~= last or ARGV[4] ~= text) then
  redis.call('HDEL', KEYS[2], 'none')
  return {3, now}
end
-- The same note is written again, too, because replicas confirm only what this request has written.
redis.call('HMSET', KEYS[2], 'revision', ARGV[3], 'text', ARGV[4])
return {1, now}
