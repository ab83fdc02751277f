-- Adds a summary, or returns the reason for a refusal. If a summary with this id is stored, changes
-- nothing. All checks precede the first change.
local head, messages, summaries = KEYS[1], KEYS[2], KEYS[3]
-- The beginning of the stored form of the last message that the summary covers is `name`.
local covers_to, id, name, body, rewrites = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local found = redis.call('HMGET', head, 'format', 'sequence', 'visible', 'pruned', 'rewrites',
    'summary', 'summary_to')
if not found[1] then
    return { redis.call('EXISTS', head) == 1 and 'foreign' or 'no message' }
elseif found[1] ~= '1' then
    return { 'newer', found[1] }
end
local pruned, seen = numbers({ sequence = found[2], visible = found[3], pruned = found[4] })
local in_force = found[6] and whole(found[7]) or 0
if not pruned or (found[6] and in_force == 0) then
    return { 'damaged' }
end
-- If no summary is in force, rows that an older release has left of an earlier conversation with the
-- same key are ignored.
local rows = redis.call('HVALS', summaries)
for place = 1, found[6] and #rows or 0 do
    if string.match(rows[place], '^(%d+) ') == id then
        -- Replicas and disks confirm only changes. Therefore the repetition changes a field.
        redis.call('HSET', head, 'format', '1')
        return { 'stored' }
    end
end
local to = whole(covers_to)
local message = to and to > pruned and to <= seen and redis.call('HGET', messages, covers_to)
if not message or string.sub(message, 1, #name) ~= name then
    return { 'no message' }
end
if (found[5] or '0') ~= rewrites then
    return { 'outdated' }
end
if in_force >= to then
    return { 'superseded' }
end

if not found[6] then
    redis.call('UNLINK', summaries)
end
redis.call('HSET', summaries, covers_to, id .. ' ' .. body)
put_in_force(head, to, id)
local ends = redis.call('PEXPIRETIME', head)
if ends > 0 then
    redis.call('PEXPIREAT', summaries, string.format('%.0f', ends))
end
return { 'stored' }
