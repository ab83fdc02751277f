-- Removes the summary in force if it has the given id. Then the previous summary is in force.
local head, summaries = KEYS[1], KEYS[2]
local id = ARGV[1]
local found = redis.call('HMGET', head, 'format', 'summary', 'summary_to')
if not found[1] then
    return { redis.call('EXISTS', head) == 1 and 'foreign' or 'absent' }
elseif found[1] ~= '1' then
    return { 'newer', found[1] }
end
if found[2] ~= id then
    return { 'absent' }
end
local removed = whole(found[3])
if not removed then
    return { 'damaged' }
end
local last, before = summary_before(summaries, removed)
redis.call('HDEL', summaries, found[3])
put_in_force(head, last, before)
return { 'deleted' }
