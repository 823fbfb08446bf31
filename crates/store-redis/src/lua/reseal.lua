-- Puts a record in another envelope, if it is the one that was read.
--
-- KEYS: run
-- ARGV: 1 seq, 2 the header found there before, 3 the header, 4 the body
-- Returns {'absent'}, {'broken'}, {'stranger'}, {'changed'}, or {'ok'}
local run, at = KEYS[1], tonumber(ARGV[1])
local first, last = bounds(run)
if not first then return last end
if at < first or at > last then return {'changed'} end
local place = 1 + 2 * (at - first)
if redis.call('LINDEX', run, place) ~= ARGV[2] then return {'changed'} end
redis.call('LSET', run, place, ARGV[3])
redis.call('LSET', run, place + 1, ARGV[4])
return {'ok'}
