-- Erases a run if its record equals the expected one. KEYS: record, updates. ARGV: expected record,
-- channel, id of the run.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return {'changed'}
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.pcall('PUBLISH', ARGV[2], ARGV[3])
return {'deleted'}
