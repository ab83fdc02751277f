-- Returns a page of the data that a prune reads: the run of each message, and the status of each
-- call.
local head, messages, tools, calls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local life, from, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local fields, rows, runs, bytes = {}, {}, {}, 0
local seen = redis.call('HMGET', head, 'sequence', 'pruned', 'life', 'writes')
local pruned, _, last = range(messages, { sequence = seen[1], pruned = seen[2] })
if not last then
    return { 'damaged' }
end
if life == '' then
    fields = redis.call('HGETALL', head)
    from = pruned + 1
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', calls, 1, last)) do
        local row = redis.call('HGET', tools, member) or ''
        rows[#rows + 1] = member
        rows[#rows + 1] = string.match(row, '^%S+ %S+ %S+') or ''
    end
elseif seen[3] ~= life then
    return { 'gone' }
end
while from <= last and bytes < most_bytes do
    local message = redis.call('HGET', messages, string.format('%.0f', from)) or ''
    runs[#runs + 1] = string.sub(message, 1, 16)
    bytes = bytes + #message
    from = from + 1
end
return { 'page', fields, rows, runs, seen[4] }
