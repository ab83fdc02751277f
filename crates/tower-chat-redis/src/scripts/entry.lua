-- Functions that update the directory entry of a conversation. The entry is a hash, which also
-- contains the token of the conversation. Counts are stored as a text of seven numbers: service
-- calls, tool calls, tokens (input, cached, output, reasoning) and the cost, which is '-' if it is
-- unknown.
local NO_COUNTS = '0 0 0 0 0 0 -'

local function text_of(value)
    return string.format('%.0f', value)
end

-- Returns the later of two times, or nil if the stored value is not a time.
local function later(stored, told)
    if not string.match(stored, '^%-?%d+$') then
        return nil
    end
    return tonumber(stored) >= tonumber(told) and stored or told
end

-- Returns the sums of the stored counts and the counts in the arguments after a position, or nil if
-- the stored counts are damaged. A sum is at most the largest number that scripts can represent
-- exactly.
local function add_counts(stored, behind)
    local sum = { string.match(stored, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$') }
    if #sum ~= 7 then
        return nil
    end
    for position, count in ipairs(sum) do
        local more = ARGV[behind + position]
        if position == 7 and count == '-' then
            sum[position] = more
        elseif more ~= '0' and more ~= '-' then
            local known = whole(count)
            if not known then
                return nil
            end
            sum[position] = text_of(math.min(known + tonumber(more), LAST))
        end
    end
    return table.concat(sum, ' ')
end

-- Returns the row of a run and a model after a write has added its counts, or nil if the stored row
-- is damaged.
local function add_row(stored, write, behind)
    local began, last, mode, counts = write.began, write.at, '-', NO_COUNTS
    if stored then
        began, last, mode, counts = string.match(stored, '^(%-?%d+) (%-?%d+) (%S+) (.*)$')
        if not began then
            return nil
        end
    end
    counts = add_counts(counts, behind)
    mode = write.mode ~= '' and write.mode or mode
    return counts and table.concat({ began, later(last, write.at), mode, counts }, ' ')
end

-- Returns the fields of the entry that a write sets and those that it removes, or nil if the entry is damaged.
local function entry_after(directory, found, write)
    local active, mode, runs, last = found[2] or write.at, found[3], found[4] or '0', found[5] or ''
    local runs_before, last_before = write.is_open and found[6], found[7] or ''
    local counts = found[8] or NO_COUNTS
    local set = {}
    if write.kind ~= 'visible' and not runs_before then
        runs_before, last_before = runs, last
    end
    if write.is_told then
        if not whole(runs) then
            return nil
        elseif last ~= write.run then
            runs, last = text_of(math.min(whole(runs) + 1, LAST)), write.run
        end
        active = later(active, write.at)
        mode = write.mode ~= '' and write.mode or mode
        for position = 1, write.usage_count do
            local behind = write.before_usage + 8 * (position - 1) + 1
            local name = write.run .. ARGV[behind]
            local stored = not write.is_new and redis.call('HGET', directory, name)
            local row = add_row(stored, write, behind)
            counts = counts and add_counts(counts, behind)
            if not row or not counts then
                return nil
            end
            set[#set + 1] = name
            set[#set + 1] = row
        end
    end
    if not active then
        return nil
    end
    local unset = {}
    if write.kind == 'discard' then
        runs, last = runs_before, last_before
    end
    local function change(name, was, is)
        if is ~= was then
            set[#set + 1] = name
            set[#set + 1] = is
        end
    end
    change('active', found[2], active)
    change('mode', found[3] or '', mode or '')
    change('runs', found[4], runs)
    change('last', found[5], last)
    change('usage', found[8], counts)
    if write.kind == 'staged' then
        change('runs_before', found[6], runs_before)
        change('last_before', found[7], last_before)
    elseif found[6] then
        unset = { 'runs_before', 'last_before' }
    end
    return set, unset
end
