-- The server's time in µs.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Lua's own conversion rounds to 14 digits.
local function digits(number)
  return string.format('%.0f', number)
end
