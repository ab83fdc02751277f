-- Returns a page of the visible messages. The first page also contains the fields of the
-- conversation. For a later page, the caller passes the life of the conversation. If the life has
-- changed, the script returns 'gone'.
--
-- If the conversation has the value of the caller for the part to load, the script skips the
-- messages that the part leaves out.
local head, messages = KEYS[1], KEYS[2]
local life, from, last, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local load_from = ARGV[7]
local fields, page = {}, {}
local leading, after
if life == '' then
    fields = redis.call('HGETALL', head)
    local found = redis.call('HMGET', head, 'visible', 'sequence', 'pruned')
    local pruned, seen, _ =
        numbers({ visible = found[1], sequence = found[2], pruned = found[3] })
    if not seen then
        return { 'damaged' }
    end
    from, last = pruned + 1, seen
    -- The query requests only a number of messages before a given message.
    if ARGV[5] ~= '' then
        last = math.max(math.min(last, tonumber(ARGV[5]) - 1), pruned)
        from = math.max(last + 1 - tonumber(ARGV[6]), from)
    end
    if load_from ~= '' and redis.call('HGET', head, 'load_from') == load_from
        and tonumber(ARGV[9]) >= pruned and tonumber(ARGV[9]) <= seen then
        leading, after = tonumber(ARGV[8]), tonumber(ARGV[9])
    end
elseif redis.call('HGET', head, 'life') ~= life then
    return { 'gone' }
end
local function following(sequence)
    if leading and sequence >= leading and sequence < after then
        return after + 1
    end
    return sequence + 1
end
from = following(from - 1)
local bytes = 0
while from <= last and (bytes < most_bytes or #page == 0) do
    local message = redis.call('HGET', messages, string.format('%.0f', from))
    if not message then
        break
    end
    page[#page + 1] = message
    bytes = bytes + #message
    from = following(from)
end
return { 'page', fields, page, redis.call('HGET', head, 'writes'), leading and 'part' or 'all' }
