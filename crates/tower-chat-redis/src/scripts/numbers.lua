-- Functions that read and check stored numbers. Without these checks, a loop up to a damaged number
-- could block the server.
local LAST = 9007199254740991

-- Returns a stored number. Returns nil if the text is not a number, or if the number is larger than
-- the largest one that scripts can represent exactly.
local function whole(text)
    if not text or #text > 16 or not string.match(text, '^%d+$') then
        return nil
    end
    local found = tonumber(text)
    return found <= LAST and found or nil
end

-- Returns the numbers of three messages of a conversation: of the last pruned message, of the last
-- visible message, and of the last message. Returns nil for all three if the conversation is
-- damaged.
local function numbers(fields)
    local pruned = whole(fields.pruned or '0')
    local last = whole(fields.sequence or '0')
    local seen = whole(fields.visible or fields.sequence or '0')
    if pruned and seen and last and pruned <= seen and seen <= last then
        return pruned, seen, last
    end
    return nil, nil, nil
end

-- Returns the same numbers as `numbers`, if the conversation also has as many messages as they
-- require. A loop between these numbers is then bounded by the number of stored messages.
local function range(messages, fields)
    local pruned, seen, last = numbers(fields)
    if last and redis.call('HLEN', messages) == last - pruned then
        return pruned, seen, last
    end
    return nil, nil, nil
end
