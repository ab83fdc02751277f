-- Returns the values of the named fields of a hash, until a number of bytes is reached, unless the
-- conversation was written after the caller has read it.
local head, values = KEYS[1], KEYS[2]
local life, writes, most_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3])
local found = redis.call('HMGET', head, 'life', 'writes')
if (found[1] or '') ~= life or (found[2] or '') ~= writes then
    return { 'changed' }
end
local page, bytes = {}, 0
for name = 4, #ARGV do
    if bytes >= most_bytes then
        break
    end
    local value = redis.call('HGET', values, ARGV[name])
    page[#page + 1] = value
    bytes = bytes + (value and #value or 0)
end
return { 'page', page }
