-- Returns the fields of a conversation, the number of its calls that wait for approval, and its
-- directory entry. The entry contains the rows of runs only if the caller requests them.
local head, messages, pending, directory = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local with_runs = ARGV[1] == '1'

local function pick(key, names)
    local values, picked = redis.call('HMGET', key, unpack(names)), {}
    for position, name in ipairs(names) do
        if values[position] then
            picked[#picked + 1] = name
            picked[#picked + 1] = values[position]
        end
    end
    return picked
end

local fields = pick(head, { 'format', 'incarnation', 'sequence', 'visible', 'pruned', 'run',
    'attempt', 'holder', 'renewed', 'until', 'opened', 'token' })
if #fields == 0 and redis.call('EXISTS', head) == 1 then
    return { 'foreign' }
end
local found = redis.call('HMGET', head, 'visible', 'sequence', 'pruned')
local _, seen, _ = range(messages, { visible = found[1], sequence = found[2], pruned = found[3] })
local waiting = seen and redis.call('ZCOUNT', pending, 1, seen) or 0
local entry
if with_runs then
    entry = redis.call('HGETALL', directory)
else
    entry = pick(directory, { 'of', 'created', 'active', 'mode', 'runs', 'last', 'runs_before',
        'last_before', 'usage', 'version', 'description', 'parent' })
end
return { 'summary', fields, seen and 'whole' or 'damaged', string.format('%.0f', waiting), entry }
