#!lua flags=allow-oom
-- Deletes a conversation with all of its keys. Returns whether the conversation existed, and the
-- token with which it was created.
local found = redis.call('HMGET', KEYS[1], 'format', 'token')
if not found[1] and redis.call('EXISTS', KEYS[1]) == 1 then
    return { 'foreign' }
end
redis.call('UNLINK', unpack(KEYS))
return { 'deleted', found[1] and '1' or '0', found[2] or '' }
