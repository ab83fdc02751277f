#!lua
-- Adds an id to the list of its scope, before the writer creates the conversation. Also stores the
-- token of the writer. Returns the latest time at which the writer may create the conversation.
redis.call('STRLEN', KEYS[2])
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('APPEND', KEYS[2], ARGV[2])
redis.call('PEXPIRE', KEYS[2], 2 * tonumber(ARGV[3]))
local now = redis.call('TIME')
return string.format('%.0f',
    tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) + tonumber(ARGV[3]))
