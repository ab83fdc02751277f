#!lua flags=allow-oom
-- Deletes a conversation with all of its keys. Returns whether the conversation existed, the token
-- with which it was created, and its parent in JSON ('' if it is not a branch).
local found = redis.call('HMGET', KEYS[1], 'format', 'token')
if not found[1] and redis.call('EXISTS', KEYS[1]) == 1 then
    return { 'foreign' }
end
-- The sixth key is the directory entry. A value of another type has no parent.
local parent = redis.pcall('HGET', KEYS[6], 'parent')
redis.call('UNLINK', unpack(KEYS))
return { 'deleted', found[1] and '1' or '0', found[2] or '',
    type(parent) == 'string' and parent or '' }
