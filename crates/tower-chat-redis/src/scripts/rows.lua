-- Returns the rows of a conversation: the fields of its head, the names of its messages, and the
-- names of the visible calls in its record, each with the number of its message. The script
-- contains no loop up to a stored number, which could be damaged.
local head, messages, calls = KEYS[1], KEYS[2], KEYS[3]
local fields = redis.call('HGETALL', head)
local found = redis.call('HMGET', head, 'visible', 'sequence', 'writes')
local last = whole(found[1] or found[2] or '0') or LAST
return { 'rows', fields, redis.call('HKEYS', messages),
    redis.call('ZRANGEBYSCORE', calls, '-inf', string.format('%.0f', last), 'WITHSCORES'),
    found[3] }
