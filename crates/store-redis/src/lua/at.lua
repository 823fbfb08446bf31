-- Reads the header at one position, for pruning.
--
-- KEYS: run
-- ARGV: 1 seq
-- Returns {'absent'}, {'broken'}, {'stranger'}, {'pruned'}, {'missing'}, or {'ok', header}
local run, at = KEYS[1], tonumber(ARGV[1])
local first, last = bounds(run)
if not first then return last end
if at < first then return {'pruned'} end
if at > last then return {'missing'} end
return {'ok', redis.call('LINDEX', run, 1 + 2 * (at - first))}
