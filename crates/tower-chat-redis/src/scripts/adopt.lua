-- Creates the directory entry of a conversation that has no entry, unless the conversation was
-- written after the caller has read it.
local head, directory = KEYS[1], KEYS[2]
local life, writes = ARGV[1], ARGV[2]
local found = redis.call('HMGET', head, 'format', 'life', 'writes', 'token')
if found[1] ~= '1' or (found[2] or '') ~= life or (found[3] or '') ~= writes then
    return { 'changed' }
end
local token, of = found[4] or '', redis.call('HGET', directory, 'of')
if of == token then
    return { 'adopted' }
end
if not of and redis.call('EXISTS', directory) == 1 then
    return { 'foreign' }
end
-- Removes an entry that remains from an earlier conversation with the same key.
redis.call('UNLINK', directory)
redis.call('HSET', directory, 'of', token)
local CHUNK = 1000
for first = 3, #ARGV, CHUNK do
    redis.call('HSET', directory, unpack(ARGV, first, math.min(first + CHUNK - 1, #ARGV)))
end
local ends = redis.call('PEXPIRETIME', head)
if ends > 0 then
    redis.call('PEXPIREAT', directory, string.format('%.0f', ends))
end
return { 'adopted' }
