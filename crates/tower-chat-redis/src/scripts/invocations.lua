-- Returns a page of the rows of the record that match a query, with the messages to which the rows
-- refer. A page contains all matching rows of a message or none of them. The reply also contains
-- the sequence number with which the next page begins.
local head, messages, tools, calls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local at = 0
local function take()
    at = at + 1
    return ARGV[at]
end
local life, from = take(), tonumber(take())
-- The messages whose rows are requested: '*' for all messages, otherwise their numbers in ascending
-- order, each followed by a comma.
local sequences = take()
-- The requested tool and the requested status: '' for any, otherwise '=' and the name.
local tool, status = take(), take()
local started_from, started_to = tonumber(take()), tonumber(take())
local limit, most_bytes, with_messages = tonumber(take()), tonumber(take()), take() == '1'

local seen = redis.call('HMGET', head, 'visible', 'sequence', 'life', 'writes', 'pruned')
if life ~= '' and seen[3] ~= life then
    return { 'gone' }
end
local _, last, _ = range(messages, { visible = seen[1], sequence = seen[2], pruned = seen[5] })
if not last then
    return { 'damaged' }
end
local rows, referred, has, bytes, following = {}, {}, {}, 0, ''

local function refer(sequence)
    if with_messages and not has[sequence] then
        has[sequence] = true
        local message = redis.call('HGET', messages, sequence)
        if message then
            referred[#referred + 1] = sequence
            referred[#referred + 1] = message
            bytes = bytes + #message
        end
    end
end

local function look(sequence, member)
    if #rows / 2 >= limit then
        return
    end
    local row = redis.call('HGET', tools, member)
    if not row then
        return
    end
    local of_status, started, in_message, length, rest = string.match(row,
        '^(%S+) (%S+) (%S+) (%d+):()')
    if of_status then
        started, length = tonumber(started), math.min(tonumber(length), #row)
        if (status ~= '' and status ~= '=' .. of_status)
            or (tool ~= '' and tool ~= '=' .. string.sub(row, rest, rest + length - 1))
            or (started_from and not (started and started >= started_from
                and started < started_to)) then
            return
        end
        refer(sequence)
        local referred_to = whole(in_message)
        if referred_to and referred_to <= last then
            refer(in_message)
        end
    end
    rows[#rows + 1] = member
    rows[#rows + 1] = row
    bytes = bytes + #row
end

if sequences == '*' then
    local CHUNK, offset, previous = 256, 0, nil
    repeat
        local chunk = redis.call('ZRANGEBYSCORE', calls, from, last, 'WITHSCORES', 'LIMIT', offset,
            CHUNK)
        for place = 1, #chunk, 2 do
            local sequence = chunk[place + 1]
            if sequence ~= previous and bytes >= most_bytes then
                following = sequence
                break
            end
            previous = sequence
            look(sequence, chunk[place])
        end
        offset = offset + CHUNK
    until following ~= '' or #chunk < 2 * CHUNK or #rows / 2 >= limit
else
    for sequence in string.gmatch(sequences, '%d+') do
        local number = tonumber(sequence)
        if number >= from and number <= last then
            if bytes >= most_bytes then
                following = sequence
                break
            end
            for _, member in ipairs(redis.call('ZRANGEBYSCORE', calls, sequence, sequence)) do
                look(sequence, member)
            end
        end
    end
end
return { 'page', seen[3], following, rows, referred, seen[4] }
