#!lua flags=no-writes
-- A page of the messages that readers see. The first page says of the conversation what there is
-- to say; the others are of that same conversation, or say that it is gone.
local head, messages = KEYS[1], KEYS[2]
local life, from, last, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local fields, page = {}, {}
if life == '' then
    fields = redis.call('HGETALL', head)
    local seen = redis.call('HMGET', head, 'visible', 'sequence', 'pruned')
    from, last = tonumber(seen[3] or '0') + 1, tonumber(seen[1] or seen[2] or '0')
elseif redis.call('HGET', head, 'life') ~= life then
    return { 'gone' }
end
local bytes = 0
while from <= last and (bytes < most_bytes or #page == 0) do
    local message = redis.call('HGET', messages, string.format('%.0f', from))
    if not message then
        break
    end
    page[#page + 1] = message
    bytes = bytes + #message
    from = from + 1
end
return { 'page', fields, page, redis.call('HGET', head, 'writes') }
