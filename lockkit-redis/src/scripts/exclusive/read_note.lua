-- KEYS note
-- Returns {revision, text, format}; each is false if there is none
-- This write changes nothing. A replica, which could be behind, refuses it.
redis.call('HDEL', KEYS[1], 'none')
return redis.call('HMGET', KEYS[1], 'revision', 'text', 'format')
