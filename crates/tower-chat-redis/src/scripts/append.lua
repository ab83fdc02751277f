-- Stores a write, or returns the reason for a refusal. All checks precede the first change, because
-- the server does not undo the changes of a script that fails.
local head, messages, tools, calls, pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local directory, summaries = KEYS[6], KEYS[7]

local at = 0
local function take()
    at = at + 1
    return ARGV[at]
end
local expected_incarnation, expected_sequence = take(), take()
local incarnation, sequence = take(), take()
-- The beginning of the stored form of the write's first message, and the run of the write.
local name, run = take(), take()
-- The kind of the write ('visible', 'staged', 'commit' or 'discard'), and the number of the last
-- message that a discard does not delete.
local kind, cut = take(), take()
local attempt, holder, renewed, held_until = take(), take(), take(), take()
-- The change of the partial text: '' for no change, otherwise '=' and the text.
local partial_text = take()
-- The change of the service id: '' for no change, '!' to remove the id, otherwise '=' and the id.
local service_id = take()
-- The time to live of the conversation in milliseconds; '' for none.
local lifetime = take()
-- '1' if the store waits for replicas or disks. The repetition of a stored write must then change a
-- field, so that replicas and disks confirm this change.
local is_synced = take()
-- For a write that may create the conversation: the latest time at which it may do so, and the
-- fields of the new conversation.
local deadline, token, life, scope, id = take(), take(), take(), take(), take()
local message_count, claim_count, row_count =
    tonumber(take()), tonumber(take()), tonumber(take())
local first_message = at
local first_claim = first_message + message_count
local first_row = first_claim + 3 * claim_count
at = first_row + 4 * row_count
-- Whether the write has an activity, with which it updates the directory, the time of the write,
-- the start of its run, the mode of the run ('' if unknown), and the number of models in the usage.
-- The rows of the usage are the next arguments.
local is_told, told_at, began_at = take() == '1', take(), take()
local mode, usage_count = take(), tonumber(take())
local before_usage = at
-- The parent of a new conversation in JSON, or ''.
at = at + 8 * usage_count
local parent = take()
-- The part of the conversation that the next run needs to load, in JSON; '' for no change.
local load_from = take()

local found = redis.call('HMGET', head, 'format', 'incarnation', 'sequence', 'visible', 'run',
    'attempt', 'holder', 'staged_service_id', 'expires', 'writes', 'pruned', 'token')
local described = redis.call('HMGET', directory, 'of', 'active', 'mode', 'runs', 'last',
    'runs_before', 'last_before', 'usage')
local is_there, is_open = found[1] and true or false, found[4] and true or false
if is_there and found[1] ~= '1' then
    return { 'newer', found[1] }
end
if not is_there and redis.call('EXISTS', head, messages, tools, calls, pending) > 0 then
    return { 'foreign' }
end
if not is_there and not described[1] and redis.call('EXISTS', directory) == 1 then
    return { 'foreign' }
end
local found_incarnation, found_sequence = found[2] or '0', found[3] or '0'
local pruned, seen, found_last =
    range(messages, { sequence = found[3], visible = found[4], pruned = found[11] })
if not found_last then
    return { 'damaged' }
end

local function conflict()
    return { 'conflict', found_incarnation, found_sequence, is_open and found[5] or '' }
end

local function stored_already()
    if is_synced == '1' then
        redis.call('HSET', head, 'format', '1')
    end
    return { 'stored' }
end

local function number(value)
    return string.format('%.0f', value)
end

if found_incarnation ~= expected_incarnation or found_sequence ~= expected_sequence then
    if found_incarnation ~= incarnation then
        return conflict()
    end
    if message_count == 0 then
        return found_sequence == sequence and stored_already() or conflict()
    end
    local there = redis.call('HGET', messages, number(tonumber(expected_sequence) + 1))
    if there and string.sub(there, 1, #name) == name then
        return stored_already()
    end
    return conflict()
end

if not is_open and kind == 'commit' and found_incarnation == incarnation
    and found_sequence == sequence then
    return stored_already()
end

if is_open then
    local found_attempt = whole(found[6])
    if not found_attempt then
        return { 'damaged' }
    end
    local is_holder = tonumber(attempt) and (tonumber(attempt) > found_attempt
        or (attempt == found[6] and holder == found[7]))
    if kind == 'visible' or run ~= found[5] or not is_holder
        or (kind == 'discard' and cut ~= found[4]) then
        return conflict()
    end
elseif kind == 'discard' then
    return conflict()
end

-- The conversation has no directory entry, because an older release has created it. The caller must
-- create the entry first.
if is_there and described[1] ~= (found[12] or '') then
    return { 'undescribed' }
end
-- If the write creates the conversation, an entry that remains from an earlier conversation with
-- the same key is ignored.
local entry, entry_unset = entry_after(directory, is_there and described or {}, {
    run = run, kind = kind, is_open = is_open, is_told = is_told, at = told_at, began = began_at,
    mode = mode,
    before_usage = before_usage, usage_count = usage_count, is_new = not is_there })
if not entry then
    return { 'damaged' }
end

for claim = first_claim + 1, first_row, 3 do
    local member, of_message, started = ARGV[claim], tonumber(ARGV[claim + 1]), ARGV[claim + 2]
    local row = of_message <= seen and redis.call('HGET', tools, member)
    local holds = started == ''
    if row then
        local status, begun = string.match(row, '^(%S+) (%S+) ')
        holds = status == 'pending_approval' and begun == (started == '' and '-' or started)
    end
    if not holds then
        return { 'claimed', member }
    end
end

local last = tonumber(sequence)
local rows, scores, waiting, answered = {}, {}, {}, {}
for row = first_row + 1, first_row + 4 * row_count, 4 do
    local member, of_message = ARGV[row], ARGV[row + 1]
    if tonumber(of_message) > pruned and tonumber(of_message) <= last then
        rows[#rows + 1] = member
        rows[#rows + 1] = ARGV[row + 3]
        scores[#scores + 1] = of_message
        scores[#scores + 1] = member
        if ARGV[row + 2] == 'pending_approval' then
            waiting[#waiting + 1] = of_message
            waiting[#waiting + 1] = member
        else
            answered[#answered + 1] = member
        end
    end
end

-- These commands fail before the first change if the keys contain values of another type.
if is_there and (#rows > 0 or kind == 'discard') then
    redis.call('HLEN', tools)
    redis.call('ZCARD', calls)
    redis.call('ZCARD', pending)
end
if not is_there then
    redis.call('HLEN', summaries)
end
-- A discard must remove only messages of its own run.
if kind == 'discard' then
    for staged = last + 1, found_last do
        local message = redis.call('HGET', messages, number(staged))
        if not message or string.sub(message, 1, 16) ~= run then
            return { 'damaged' }
        end
    end
end

local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
if not is_there and now > tonumber(deadline) then
    return { 'late' }
end

local CHUNK = 1000
local function all(command, key, values)
    for first = 1, #values, CHUNK do
        redis.call(command, key, unpack(values, first, math.min(first + CHUNK - 1, #values)))
    end
end

if kind == 'discard' then
    local gone = {}
    for staged = last + 1, found_last do
        gone[#gone + 1] = number(staged)
    end
    all('HDEL', messages, gone)
    local from = '(' .. sequence
    all('HDEL', tools, redis.call('ZRANGEBYSCORE', calls, from, '+inf'))
    redis.call('ZREMRANGEBYSCORE', calls, from, '+inf')
    redis.call('ZREMRANGEBYSCORE', pending, from, '+inf')
elseif message_count > 0 then
    local appended = {}
    for place = 1, message_count do
        appended[#appended + 1] = number(tonumber(expected_sequence) + place)
        appended[#appended + 1] = ARGV[first_message + place]
    end
    all('HSET', messages, appended)
end
all('HSET', tools, rows)
all('ZADD', calls, scores)
all('ZADD', pending, waiting)
all('ZREM', pending, answered)

if not is_there then
    redis.call('UNLINK', directory, summaries)
    redis.call('HSET', directory, 'of', token, 'created', began_at)
    if parent ~= '' then
        redis.call('HSET', directory, 'parent', parent)
    end
end
all('HSET', directory, entry)
all('HDEL', directory, entry_unset)

local set = { 'incarnation', incarnation, 'sequence', sequence,
    'writes', number((whole(found[10]) or 0) + 1) }
local unset = {}
local function field(key, value)
    set[#set + 1] = key
    set[#set + 1] = value
end
local function change(key, value)
    if value == '!' then
        unset[#unset + 1] = key
    elseif value ~= '' then
        field(key, string.sub(value, 2))
    end
end
if not is_there then
    field('format', '1')
    field('life', life)
    field('token', token)
    field('scope', scope)
    field('id', id)
end
if load_from ~= '' then
    field('load_from', load_from)
end
if kind == 'visible' then
    change('service_id', service_id)
elseif kind == 'staged' then
    if not is_open then
        field('visible', expected_sequence)
        field('run', run)
        field('opened', renewed)
    end
    field('attempt', attempt)
    field('holder', holder)
    field('renewed', renewed)
    field('until', held_until)
    if service_id ~= '' then
        field('staged_service_id', service_id)
    end
    change('partial_text', partial_text == '=' and '!' or partial_text)
else
    if kind == 'commit' then
        change('service_id', service_id ~= '' and service_id or found[8] or '')
    end
    if is_open then
        for _, key in ipairs({ 'visible', 'run', 'opened', 'attempt', 'holder', 'renewed',
            'until', 'staged_service_id', 'partial_text' }) do
            unset[#unset + 1] = key
        end
    end
end
if lifetime ~= '' then
    field('expires', '1')
elseif found[9] then
    unset[#unset + 1] = 'expires'
end
redis.call('HSET', head, unpack(set))
if #unset > 0 then
    redis.call('HDEL', head, unpack(unset))
end

if lifetime ~= '' then
    local ends = number(now + tonumber(lifetime))
    for _, key in ipairs(KEYS) do
        redis.call('PEXPIREAT', key, ends)
    end
elseif found[9] then
    for _, key in ipairs(KEYS) do
        redis.call('PERSIST', key)
    end
end
return { 'stored' }
