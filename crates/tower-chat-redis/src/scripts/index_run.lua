-- Changes the entry of a run in the index of an update log. KEYS: runs by time, runs by name. ARGV:
-- run; time; 'NX' or 'GT' as in ZADD, or 'REM' to remove an entry that is not later than the time.
if ARGV[3] == 'REM' then
    local time = redis.call('ZSCORE', KEYS[1], ARGV[1])
    if not time or tonumber(time) <= tonumber(ARGV[2]) then
        redis.call('ZREM', KEYS[1], ARGV[1])
        redis.call('ZREM', KEYS[2], ARGV[1])
    end
else
    redis.call('ZADD', KEYS[1], ARGV[3], ARGV[2], ARGV[1])
    redis.call('ZADD', KEYS[2], 0, ARGV[1])
end
return {'set'}
