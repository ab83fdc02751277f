-- A function that recomputes the counts in the directory entry of a conversation. The arguments
-- after the position `behind` are runs, each followed by its number of tool calls.
local NAME_OF_RUN, COUNTS = 16, 7

-- Returns stored counts. A damaged count becomes 0, and a damaged cost becomes unknown.
local function counts_in(text)
    local counts = {}
    for word in string.gmatch(text, '%S+') do
        counts[#counts + 1] = whole(word) and word or '0'
    end
    for position = 1, COUNTS - 1 do
        counts[position] = counts[position] or '0'
    end
    counts[COUNTS] = string.match(text, '^%S+ %S+ %S+ %S+ %S+ %S+ (%d+)$') and counts[COUNTS] or '-'
    return { unpack(counts, 1, COUNTS) }
end

local function recounted(directory, runs, behind, run_count)
    local tool_calls, is_counted, fields = {}, {}, redis.call('HGETALL', directory)
    for place = behind + 1, behind + 2 * run_count, 2 do
        tool_calls[ARGV[place]] = ARGV[place + 1]
    end
    local rows, names = {}, {}
    for place = 1, #fields, 2 do
        if #fields[place] >= NAME_OF_RUN then
            rows[fields[place]] = fields[place + 1]
            names[#names + 1] = fields[place]
        end
    end
    -- A run has a row for each model, and the record does not contain the model that has made a
    -- call. Therefore the first row of a run gets all tool calls of the run.
    table.sort(names)
    local entry, total = { 'runs', runs }, { 0, 0, 0, 0, 0, 0, '-' }
    for _, name in ipairs(names) do
        local began, last, mode, stored = string.match(rows[name], '^(%S+) (%S+) (%S+) ?(.*)$')
        local run, counts = string.sub(name, 1, NAME_OF_RUN), counts_in(stored or '')
        if began and tool_calls[run] then
            counts[2] = is_counted[run] and '0' or tool_calls[run]
            is_counted[run] = true
        end
        if began then
            entry[#entry + 1] = name
            entry[#entry + 1] = table.concat({ began, last, mode, table.concat(counts, ' ') }, ' ')
        end
        for position, count in ipairs(counts) do
            if count ~= '-' then
                local sum = total[position] == '-' and 0 or total[position]
                total[position] = math.min(sum + tonumber(count), LAST)
            end
        end
    end
    for position, sum in ipairs(total) do
        total[position] = sum == '-' and sum or string.format('%.0f', sum)
    end
    entry[#entry + 1] = 'usage'
    entry[#entry + 1] = table.concat(total, ' ')
    return entry
end
