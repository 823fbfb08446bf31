-- Reads the records after one that the caller knows.
--
-- KEYS: run
-- ARGV: 1 its number, 2 its id in 16 bytes
-- Returns {'absent'}, {'broken'}, {'stranger'}, {'missing'} if it is not kept,
--         or {'ok', first number returned, last number, {header, body, header, body, ...}}
local run, known = KEYS[1], tonumber(ARGV[1])
local first, last = bounds(run)
if not first then return last end
if known < first or known > last then return {'missing'} end
local behind = last - known
if string.sub(redis.call('LINDEX', run, -2 * behind - 2), 1, 16) ~= ARGV[2] then return {'missing'} end
if behind == 0 then return {'ok', last + 1, last, {}} end
return {'ok', known + 1, last, redis.call('LRANGE', run, -2 * behind, -1)}
