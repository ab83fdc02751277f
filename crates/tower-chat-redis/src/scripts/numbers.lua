-- Reads stored numbers. A script that counted to a damaged number would block the server.
local LAST = 9007199254740991

-- Returns a stored number, or nil if scripts cannot represent all integers up to it exactly.
local function whole(text)
    if not text or #text > 16 or not string.match(text, '^%d+$') then
        return nil
    end
    local found = tonumber(text)
    return found <= LAST and found or nil
end

-- Returns the numbers of three messages of a conversation: the last pruned one, the last visible one, and the last one.
-- Returns nil if the conversation is damaged. The caller must then not use any of these numbers.
local function numbers(fields)
    local pruned = whole(fields.pruned or '0')
    local last = whole(fields.sequence or '0')
    local seen = whole(fields.visible or fields.sequence or '0')
    if pruned and seen and last and pruned <= seen and seen <= last then
        return pruned, seen, last
    end
    return nil, nil, nil
end

-- Returns the same numbers if the number of messages agrees with them, so that a loop over the messages is bounded.
local function range(messages, fields)
    local pruned, seen, last = numbers(fields)
    if last and redis.call('HLEN', messages) == last - pruned then
        return pruned, seen, last
    end
    return nil, nil, nil
end
