-- Removes all messages up to and including a given message, with the rows of their calls, unless
-- the conversation was written after the caller has read it.
local head, messages, tools, calls, pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local directory, summaries = KEYS[6], KEYS[7]
local life, writes, cut, incarnation, next_life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local found = redis.call('HMGET', head, 'format', 'life', 'writes', 'pruned', 'run', 'sequence',
    'token', 'summary_to')
if found[2] == next_life then
    return { 'pruned' }
end
if found[2] ~= life or found[3] ~= writes or found[5] then
    return { 'changed' }
end
-- The directory entry must exist before messages are removed, because the number of runs in a
-- missing entry is computed from the messages.
if redis.call('HGET', directory, 'of') ~= (found[7] or '') then
    return { 'undescribed' }
end
local pruned, _, last = range(messages, { sequence = found[6], pruned = found[4] })
local to = whole(cut)
if not last or not to or to > last then
    return { 'damaged' }
end
redis.call('HLEN', tools)
redis.call('ZCARD', pending)
-- The summary in force remains, although its messages may all be pruned.
local covered = {}
for _, covers_to in ipairs(redis.call('HKEYS', summaries)) do
    if (whole(covers_to) or LAST) <= to and covers_to ~= found[8] then
        covered[#covered + 1] = covers_to
    end
end
local members = redis.call('ZRANGEBYSCORE', calls, '-inf', cut)

local CHUNK = 1000
local function remove(key, fields)
    for first = 1, #fields, CHUNK do
        redis.call('HDEL', key, unpack(fields, first, math.min(first + CHUNK - 1, #fields)))
    end
end
local gone = {}
for sequence = pruned + 1, to do
    gone[#gone + 1] = string.format('%.0f', sequence)
end
remove(messages, gone)
remove(tools, members)
remove(summaries, covered)
redis.call('ZREMRANGEBYSCORE', calls, '-inf', cut)
redis.call('ZREMRANGEBYSCORE', pending, '-inf', cut)
redis.call('HSET', head, 'pruned', cut, 'incarnation', incarnation, 'life', next_life,
    'writes', string.format('%.0f', (whole(writes) or 0) + 1))
return { 'pruned' }
