#!lua
-- Adds a branch to the index of its parent, before the writer creates the branch. Also stores the
-- time, and the token of the writer. A value consists of the time in milliseconds, a space, and the
-- tokens of the writers that may still create the branch. Returns whether the branch is new.
local index, branch, token, expiry = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local found = redis.call('HGET', index, branch)
local at, tokens = string.match(found or '', '^(%d+) (.*)$')
if not at or now - tonumber(at) > expiry then
    tokens = ''
end
redis.call('HSET', index, branch, string.format('%.0f ', now) .. tokens .. token)
return found and 'known' or 'new'
