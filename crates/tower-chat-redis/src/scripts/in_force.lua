-- Functions for the summaries of a conversation. The fields of their hash are the numbers of the last
-- messages that the summaries cover. A value begins with the id of the summary.

-- Returns the summary that covers most messages, but none from `limit` on: the number of the last
-- message that it covers, and its id. Returns nil if there is none.
local function summary_before(summaries, limit)
    local last, id
    local rows = redis.call('HGETALL', summaries)
    for place = 1, #rows, 2 do
        local covers_to = whole(rows[place])
        if covers_to and covers_to < limit and (not last or covers_to > last) then
            last, id = covers_to, string.match(rows[place + 1], '^(%d+) ')
        end
    end
    return last, id
end

-- Stores in the head which summary is in force. If `last` or `id` is nil, no summary is in force.
local function put_in_force(head, last, id)
    if last and id then
        redis.call('HSET', head, 'summary', id, 'summary_to', string.format('%.0f', last))
    else
        redis.call('HDEL', head, 'summary', 'summary_to')
    end
end
