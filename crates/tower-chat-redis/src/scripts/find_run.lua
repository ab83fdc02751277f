-- Returns the record of a run, and its updates after a position: each position, then the text.
-- KEYS: record, updates. ARGV: position, limit.
local record = redis.call('GET', KEYS[1])
local updates = {}
if ARGV[2] ~= '0' then
    local found = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
    for _, entry in ipairs(found) do
        updates[#updates + 1] = entry[1]
        updates[#updates + 1] = entry[2][2]
    end
end
return {record, updates}
