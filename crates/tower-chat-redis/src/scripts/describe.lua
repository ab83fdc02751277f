-- Sets the description of a conversation if the stored description has the expected version. If the
-- same request is repeated, the script recognises the id of the request.
local head, directory = KEYS[1], KEYS[2]
local expected, request, description = ARGV[1], ARGV[2], ARGV[3]
local found = redis.call('HMGET', head, 'format', 'token')
if not found[1] then
    return { redis.call('EXISTS', head) == 1 and 'foreign' or 'absent' }
elseif found[1] ~= '1' then
    return { 'newer', found[1] }
end
local described = redis.call('HMGET', directory, 'of', 'version', 'set_by')
if described[1] ~= (found[2] or '') then
    return { 'undescribed' }
end
local version = whole(described[2] or '0')
if not version then
    return { 'damaged' }
end
local is_set = described[3] == request
if not is_set and string.format('%.0f', version) ~= expected then
    return { 'changed', string.format('%.0f', version) }
end
if not is_set then
    version = math.min(version + 1, LAST)
end
redis.call('HSET', directory, 'version', string.format('%.0f', version), 'set_by', request,
    'description', description)
return { 'set', string.format('%.0f', version) }
