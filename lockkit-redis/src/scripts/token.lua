-- The token counter of the server, or, on a cluster, of the slot: a string, the last token of all
-- names. It never lapses.
local counter

-- From format 2 on, the counter begins with `lockkit/` and the format, whatever else that format
-- writes. Then a newer lockkit keeps these names, and this script cannot read their data. A key of
-- another type is no such mark: reading a token from it fails.
local function is_newer(last)
  return type(last) == 'string' and string.find(last, '^lockkit/%d') ~= nil
end

-- Returns a token above all earlier ones and not below the time. Returns nil if no token is left,
-- or if a newer lockkit keeps the name.
local function next_token(now)
  local last = redis.call('GET', counter)
  if is_newer(last) then return nil end
  local token = math.max((last and tonumber(string.match(last, '^%d+')) or 0) + 1, now)
  return token < 9007199254740992 and token or nil
end
