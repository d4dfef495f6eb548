-- Several attempts and releases, of different owners, as one request. Each of them does what
-- acquire_free.lua and release_free.lua do, or nothing: then the client sends it alone.
-- KEYS counter, the locks of all, the queues of all, in one order: first the releases
-- ARGV number of releases, for each release `token:owner`, for each attempt owner, lease in ms and
--   not_after in µs
-- Returns the time, and for each: 0 if nothing was done, 1 if freed, or the token.
-- Without keys, does nothing. So a server learns the script.
if #KEYS == 0 then return {} end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local all, releases = (#KEYS - 1) / 2, tonumber(ARGV[1])
-- Not by MGET, which finds nothing in a key of another type.
local last = all > releases and redis.call('GET', KEYS[1])
local values = redis.call('MGET', unpack(KEYS, 2, 1 + all))
local queued = redis.call('EXISTS', unpack(KEYS, 2 + all)) > 0
local function is_waited_for(i)
  return queued and redis.call('EXISTS', KEYS[1 + all + i]) == 1
end
-- The place of an attempt's owner in ARGV.
local function owner_of(i)
  return 3 * i - 2 * releases - 1
end

local answers, freed, free = {now}, {}, {}
for i = 1, all do
  answers[1 + i] = 0
end
for i = 1, releases do
  if values[i] == ARGV[1 + i] and not is_waited_for(i) then
    freed[#freed + 1] = KEYS[1 + i]
    answers[1 + i] = 1
  end
end
for i = releases + 1, all do
  if now <= tonumber(ARGV[owner_of(i) + 2]) and not values[i] and not is_waited_for(i) then
    free[#free + 1] = i
  end
end

-- The tokens are the times after now, as texts of 16 digits until the year 2286. Within a second,
-- only the last six change.
local micros = 1000000 + time[2]
local function token(i)
  return time[1] .. string.sub(micros + i, 2)
end
if not (#time[1] == 10 and micros + #free < 2000000 and (not last or #last == 16 and last < token(1))) then free = {} end

-- The counter is the first write, and gets the last token. If the server refuses it, nothing was
-- done.
if #free > 0 then redis.call('SET', KEYS[1], token(#free)) end
if #freed > 0 then redis.call('DEL', unpack(freed)) end
for i, at in ipairs(free) do
  local owner = owner_of(at)
  local value = token(i) .. ':' .. ARGV[owner]
  -- NX, because two attempts of a batch may be for one lock.
  if redis.call('SET', KEYS[1 + at], value, 'PX', ARGV[owner + 1], 'NX') then
    answers[1 + at] = now + i
  end
end
return answers
