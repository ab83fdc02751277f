#!lua
-- Creates a conversation from the temporary parts of a copy, if the conversation does not exist.
local head = KEYS[1]
local incarnation, sequence, row_count, lifetime = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local deadline, token, life, scope, id = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local pruned = ARGV[10]
-- The time of the copy, and the directory entry of the original.
local made_at, mode, runs, last_run, version, description =
    ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15], ARGV[16]
local parent = ARGV[17]
local directory = KEYS[10]
local found = redis.call('HMGET', head, 'format', 'life')
if found[1] then
    return { found[2] == life and 'made' or 'exists' }
end
if redis.call('EXISTS', unpack(KEYS, 1, 5)) > 0 then
    return { 'foreign' }
end
if not redis.call('HGET', directory, 'of') and redis.call('EXISTS', directory) == 1 then
    return { 'foreign' }
end
if redis.call('HLEN', KEYS[6]) ~= tonumber(sequence) - tonumber(pruned)
    or redis.call('HLEN', KEYS[7]) ~= tonumber(row_count) then
    return { 'incomplete' }
end
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
if now > tonumber(deadline) then
    return { 'late' }
end
redis.call('HSET', head, 'format', '1', 'incarnation', incarnation, 'sequence', sequence,
    'pruned', pruned, 'writes', '1', 'life', life, 'token', token, 'scope', scope, 'id', id)
-- Removes an entry that remains from an earlier conversation with the same key.
redis.call('UNLINK', directory)
redis.call('HSET', directory, 'of', token, 'created', made_at, 'active', made_at, 'mode', mode,
    'runs', runs, 'last', last_run, 'version', version, 'description', description,
    'parent', parent, 'usage', '0 0 0 0 0 0 -')
for part = 2, 5 do
    if redis.call('EXISTS', KEYS[part + 4]) == 1 then
        redis.call('RENAME', KEYS[part + 4], KEYS[part])
        redis.call('PERSIST', KEYS[part])
    end
end
if lifetime ~= '' then
    redis.call('HSET', head, 'expires', '1')
    local ends = string.format('%.0f', now + tonumber(lifetime))
    for part = 1, 5 do
        redis.call('PEXPIREAT', KEYS[part], ends)
    end
    redis.call('PEXPIREAT', directory, ends)
end
return { 'made' }
