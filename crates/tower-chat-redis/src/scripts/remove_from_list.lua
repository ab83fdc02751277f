#!lua flags=allow-oom
-- Removes an id from the list of its scope, unless a token shows that another writer may create the
-- conversation.
local noted = redis.call('GET', KEYS[2])
if noted and noted ~= ARGV[2] then
    return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[2])
return 1
