-- Returns the fields of a conversation, its calls that wait for approval, and the messages that
-- contain these calls.
local head, messages, pending = KEYS[1], KEYS[2], KEYS[3]
local fields = redis.call('HGETALL', head)
local found = redis.call('HMGET', head, 'visible', 'sequence', 'pruned')
local _, seen, _ = range(messages, { visible = found[1], sequence = found[2], pruned = found[3] })
if not seen then
    return { 'damaged' }
end
local waiting = redis.call('ZRANGEBYSCORE', pending, 1, seen, 'WITHSCORES')
local requests, asked = {}, {}
for place = 2, #waiting, 2 do
    local sequence = waiting[place]
    if not asked[sequence] then
        asked[sequence] = true
        requests[#requests + 1] = sequence
        requests[#requests + 1] = redis.call('HGET', messages, sequence)
    end
end
return { 'head', fields, waiting, requests }
