-- Comes before release.lua, and has the same arguments. Without waiters there is nothing to hand
-- over. If a lease has lapsed, the code that follows removes it.
if ARGV[2] == '' and ARGV[3] == '0' and redis.call('EXISTS', KEYS[2]) == 0 then
  local stored = redis.call('HMGET', KEYS[5], ARGV[1], 'used')
  if stored[1] then
    local time, count = redis.call('TIME'), string.match(stored[1], '^%d+')
    if redis.call('ZCOUNT', KEYS[4], '-inf', time[1] .. string.sub('00000' .. time[2], -6)) == 0 then
      if count == stored[2] then
        -- If the holders were evicted, nothing was held.
        return redis.call('DEL', KEYS[4], KEYS[5]) - 1
      end
      if redis.call('ZREM', KEYS[4], ARGV[1]) == 1 then
        redis.call('HDEL', KEYS[5], ARGV[1])
        redis.call('HSET', KEYS[5], 'used', stored[2] - count)
        return 1
      end
    end
  end
end
