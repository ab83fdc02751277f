#!lua flags=allow-oom
-- Takes an id off the list of its scope, unless somebody may be about to make its conversation.
local noted = redis.call('GET', KEYS[2])
if noted and noted ~= ARGV[2] then
    return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[2])
return 1
