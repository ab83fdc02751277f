#!lua flags=no-writes
-- A conversation without its messages, and the calls in it that wait for consent.
local head, messages, pending = KEYS[1], KEYS[2], KEYS[3]
local fields = redis.call('HGETALL', head)
local seen = redis.call('HMGET', head, 'visible', 'sequence')
local waiting = redis.call('ZRANGEBYSCORE', pending, 1, seen[1] or seen[2] or 0, 'WITHSCORES')
local requests, asked = {}, {}
for place = 2, #waiting, 2 do
    local sequence = waiting[place]
    if not asked[sequence] then
        asked[sequence] = true
        requests[#requests + 1] = sequence
        requests[#requests + 1] = redis.call('HGET', messages, sequence)
    end
end
return { fields, waiting, requests }
