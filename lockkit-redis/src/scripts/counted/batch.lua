-- Several attempts and releases of permits, of different owners, as one request. Each of them does
-- what grant.lua or give_back.lua does. If that is nothing, the client sends it alone.
-- KEYS counter, and for each the queue, the holders and the grants: first the releases
-- ARGV number of releases, for each release the owner, for each attempt owner, lease in ms, not_after
--   in µs, count and limit
-- Returns the time, and for each: the token, 1 if freed, 0 if nothing was freed or granted, or -1 if
--   the server refused a command of it
-- Without keys, does nothing. So a server learns the script.
if #KEYS == 0 then return {} end
local time = redis.call('TIME')
local now, micros = time[1] * 1000000 + time[2], 1000000 + time[2]
local all, releases = (#KEYS - 1) / 3, tonumber(ARGV[1])
-- If the counter has another type, the server refuses the batch before the first write.
local last = all > releases and redis.call('GET', KEYS[1])
-- Within a second, only the last six digits of a time change.
local function text(after)
  return time[1] .. string.sub(micros + after, 2)
end
local moment, answers = text(0), {now}

-- A request that the server refuses does not end the batch.
local function answer(i, free, ...)
  local key = 3 * i - 1
  local ran, done = pcall(free, KEYS[key], KEYS[key + 1], KEYS[key + 2], ...)
  answers[1 + i] = ran and (tonumber(done) or 0) or -1
end

-- The attempts come first. A full server refuses the first write of a script, and it must be theirs.
-- The tokens are the times from now on. An attempt that does nothing has one, too.
local is_last_below = not last or #last == 16 and last < moment
local can_count = #time[1] == 10 and micros + all < 2000000 and is_last_below
for i = releases + 1, all do
  local at = 5 * i - 4 * releases - 3
  if can_count and now <= tonumber(ARGV[at + 2]) then
    local token = text(i - releases - 1)
    answer(i, acquire_free, ARGV[at], ARGV[at + 1], ARGV[at + 3], ARGV[at + 4], moment, token)
  else
    answers[1 + i] = 0
  end
end
for i = 1, releases do
  answer(i, release_free, ARGV[1 + i], moment)
end
return answers
