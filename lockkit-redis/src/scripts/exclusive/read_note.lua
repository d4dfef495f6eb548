-- KEYS note    {revision, text, format}; each is false if there is none
-- A replica could be behind: it is found out by a write, which does nothing.
redis.call('HDEL', KEYS[1], 'none')
return redis.call('HMGET', KEYS[1], 'revision', 'text', 'format')
