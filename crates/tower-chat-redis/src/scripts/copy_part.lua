#!lua
-- Stores a part of a copy under temporary keys, which expire after the maximum duration of a copy.
local messages, tools, calls, pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local kept, message_count, row_count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local at = 3
for _ = 1, message_count do
    redis.call('HSET', messages, ARGV[at + 1], ARGV[at + 2])
    at = at + 2
end
for _ = 1, row_count do
    local member, sequence, row = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    redis.call('HSET', tools, member, row)
    redis.call('ZADD', calls, sequence, member)
    if string.match(row, '^%S+') == 'pending_approval' then
        redis.call('ZADD', pending, sequence, member)
    end
    at = at + 3
end
for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, kept)
end
