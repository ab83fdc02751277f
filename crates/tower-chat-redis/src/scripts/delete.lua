#!lua flags=allow-oom
-- Deletes a conversation with everything that belongs to it; says whether there was one, and what
-- was noted when it was made.
local found = redis.call('HMGET', KEYS[1], 'format', 'token')
if not found[1] and redis.call('EXISTS', KEYS[1]) == 1 then
    return { 'foreign' }
end
redis.call('UNLINK', unpack(KEYS))
return { 'deleted', found[1] and '1' or '0', found[2] or '' }
