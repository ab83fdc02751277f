-- Changes messages and rows in place, or returns the reason for a refusal. All checks precede the first change.
local head, messages, tools, calls, pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local directory, summaries = KEYS[6], KEYS[7]
local expected_incarnation, expected_sequence, incarnation, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local message_count, row_count = tonumber(ARGV[5]), tonumber(ARGV[6])
-- The new number of runs in the directory entry ('' for no change), and the number of runs that get
-- a new count of tool calls.
local runs, run_count = ARGV[7], tonumber(ARGV[8])
local first_message = 8 + 2 * run_count
local first_row = first_message + 2 * message_count
local first_removed = first_row + 4 * row_count
local found = redis.call('HMGET', head, 'format', 'incarnation', 'sequence', 'run', 'life', 'writes',
    'pruned', 'token', 'rewrites', 'summary')
if not found[1] then
    return { redis.call('EXISTS', head) == 1 and 'foreign' or 'conflict', '0', '0', '' }
elseif found[1] ~= '1' then
    return { 'newer', found[1] }
end
-- The same request was already executed.
if found[5] == life then
    return { 'rewritten' }
end
if found[2] ~= expected_incarnation or found[3] ~= expected_sequence or found[4] then
    return { 'conflict', found[2] or '', found[3] or '', found[4] or '' }
end
local pruned, last = whole(found[7] or '0'), whole(found[3])
if not pruned or not last then
    return { 'damaged' }
end
local rewritten, first = {}, nil
for place = first_message + 1, first_row, 2 do
    local there = redis.call('HGET', messages, ARGV[place])
    -- A stored message begins with its id, which has 20 bytes. The rewrite does not change the id.
    if not there or #there < 20 or tonumber(ARGV[place]) > last then
        return { 'missing', ARGV[place] }
    end
    first = math.min(first or tonumber(ARGV[place]), tonumber(ARGV[place]))
    rewritten[#rewritten + 1] = ARGV[place]
    rewritten[#rewritten + 1] = string.sub(there, 1, 20) .. ARGV[place + 1]
end
redis.call('HLEN', tools)
redis.call('ZCARD', calls)
redis.call('ZCARD', pending)
-- The summaries that cover a changed message are deleted.
local covering, before, before_id = {}, nil, nil
if first and found[10] then
    before, before_id = summary_before(summaries, first)
    for _, covers_to in ipairs(redis.call('HKEYS', summaries)) do
        if (whole(covers_to) or LAST) >= first then
            covering[#covering + 1] = covers_to
        end
    end
end
local entry = {}
if runs ~= '' and redis.call('HGET', directory, 'of') == (found[8] or '') then
    entry = recounted(directory, runs, 8, run_count)
end

for place = 1, #rewritten, 2 do
    redis.call('HSET', messages, rewritten[place], rewritten[place + 1])
end
for _, covers_to in ipairs(covering) do
    redis.call('HDEL', summaries, covers_to)
end
if #covering > 0 then
    put_in_force(head, before, before_id)
end
if first then
    redis.call('HSET', head, 'rewrites', string.format('%.0f', (whole(found[9] or '0') or 0) + 1))
end
for place = first_row + 1, first_removed, 4 do
    local member, of_message, status, row =
        ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2], ARGV[place + 3]
    if of_message > pruned and of_message <= last then
        redis.call('HSET', tools, member, row)
        redis.call('ZADD', calls, ARGV[place + 1], member)
        if status == 'pending_approval' then
            redis.call('ZADD', pending, ARGV[place + 1], member)
        else
            redis.call('ZREM', pending, member)
        end
    end
end
for place = first_removed + 1, #ARGV do
    redis.call('HDEL', tools, ARGV[place])
    redis.call('ZREM', calls, ARGV[place])
    redis.call('ZREM', pending, ARGV[place])
end
for place = 1, #entry, 2 do
    redis.call('HSET', directory, entry[place], entry[place + 1])
end
redis.call('HSET', head, 'incarnation', incarnation, 'life', life,
    'writes', string.format('%.0f', (whole(found[6]) or 0) + 1))
return { 'rewritten' }
