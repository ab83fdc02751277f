-- Numbers as they are stored: a script that counts to a damaged one would keep the server busy.
local LAST = 9007199254740991

-- A stored number, if it is one that all scripts can count to exactly.
local function whole(text)
    if not text or #text > 16 or not string.match(text, '^%d+$') then
        return nil
    end
    local found = tonumber(text)
    return found <= LAST and found or nil
end

-- Of a conversation: the number of the last message that was pruned, of the last that readers see, and
-- of the last. Without a third number the conversation is damaged, and nothing may be done that
-- depends on them.
local function numbers(fields)
    local pruned = whole(fields.pruned or '0')
    local last = whole(fields.sequence or '0')
    local seen = whole(fields.visible or fields.sequence or '0')
    if pruned and seen and last and pruned <= seen and seen <= last then
        return pruned, seen, last
    end
    return nil, nil, nil
end

-- The same where there are as many messages as the numbers say: going through them has an end.
local function range(messages, fields)
    local pruned, seen, last = numbers(fields)
    if last and redis.call('HLEN', messages) == last - pruned then
        return pruned, seen, last
    end
    return nil, nil, nil
end
