-- Returns the staged messages and rows of an open run.
local head, messages, tools, calls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local fields = redis.call('HGETALL', head)
local found = redis.call('HMGET', head, 'visible', 'sequence', 'pruned')
local _, seen, last = range(messages, { visible = found[1], sequence = found[2], pruned = found[3] })
if not last then
    return { 'damaged' }
end
local staged, rows = {}, {}
if found[1] then
    for sequence = seen + 1, last do
        staged[#staged + 1] = redis.call('HGET', messages, string.format('%.0f', sequence))
    end
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', calls, '(' .. found[1], '+inf')) do
        rows[#rows + 1] = member
        rows[#rows + 1] = redis.call('HGET', tools, member)
    end
end
return { 'open run', fields, staged, rows }
