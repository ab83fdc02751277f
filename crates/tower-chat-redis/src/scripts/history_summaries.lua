-- Returns the summary with an id, or all summaries of a conversation if the id is ''.
local head, summaries = KEYS[1], KEYS[2]
local id = ARGV[1]
local found = redis.call('HMGET', head, 'format', 'summary')
if not found[1] then
    if redis.call('EXISTS', head) == 1 then
        return { 'foreign' }
    end
    return { 'summaries', {} }
elseif found[1] ~= '1' then
    return { 'newer', found[1] }
end
-- If no summary is in force, rows that an older release has left of an earlier conversation with the
-- same key are ignored.
if not found[2] then
    return { 'summaries', {} }
end
local rows = redis.call('HGETALL', summaries)
if id == '' then
    return { 'summaries', rows }
end
for place = 1, #rows, 2 do
    if string.match(rows[place + 1], '^(%d+) ') == id then
        return { 'summaries', { rows[place], rows[place + 1] } }
    end
end
return { 'summaries', {} }
