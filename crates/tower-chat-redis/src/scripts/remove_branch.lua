#!lua flags=allow-oom
-- Removes a branch from the index of its parent, unless a token shows that another writer may create
-- the branch.
local index, branch, token, expiry = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local found = redis.call('HGET', index, branch)
local at, tokens = string.match(found or '', '^(%d+) (.*)$')
if at and now - tonumber(at) <= expiry and tokens ~= token then
    return 0
end
return redis.call('HDEL', index, branch)
