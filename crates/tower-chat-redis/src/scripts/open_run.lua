#!lua flags=no-writes
-- What is staged of an open run.
local head, messages, tools, calls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local fields = redis.call('HGETALL', head)
local seen = redis.call('HMGET', head, 'visible', 'sequence')
local staged, rows = {}, {}
if seen[1] then
    for sequence = tonumber(seen[1]) + 1, tonumber(seen[2]) do
        staged[#staged + 1] = redis.call('HGET', messages, string.format('%.0f', sequence))
    end
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', calls, '(' .. seen[1], '+inf')) do
        rows[#rows + 1] = member
        rows[#rows + 1] = redis.call('HGET', tools, member)
    end
end
return { fields, staged, rows }
