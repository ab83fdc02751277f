-- Replaces the record of a run and adds updates, if the stored record equals the expected one.
-- KEYS: record, updates. ARGV: expected record or '', new record, time to live in milliseconds,
-- channel, id of the run; then each position, followed by the text.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
    return {'changed'}
end
redis.call('XLEN', KEYS[2]) -- fails before any change if the key has another type
if ARGV[1] == '' then
    redis.call('DEL', KEYS[2])
end
for index = 6, #ARGV, 2 do
    redis.call('XADD', KEYS[2], ARGV[index], 'data', ARGV[index + 1])
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.pcall('PUBLISH', ARGV[4], ARGV[5]) -- ignores an error: the user may have no permission
return {'stored'}
