-- Reads the header at one position, for pruning.
--
-- KEYS: head, log
-- ARGV: 1 seq
-- Returns {'absent'}, {'newer', layout}, {'pruned'}, {'missing'}, {'hole', seq}, or {'ok', header}
local head = redis.call('HMGET', KEYS[1], 'seq', 'first', 'layout', 'cut_header')
if not head[1] then return {redis.call('EXISTS', KEYS[2]) == 1 and 'torn' or 'absent'} end
if tonumber(head[3]) ~= 1 then return {'newer', head[3] or '?'} end
local at = tonumber(ARGV[1])
if at < tonumber(head[2]) then return {'pruned'} end
if at > tonumber(head[1]) then return {'missing'} end
if at == tonumber(head[2]) and head[4] then return {'ok', head[4]} end
local entry = redis.call('XRANGE', KEYS[2], ARGV[1] .. '-1', ARGV[1] .. '-1')[1]
if not entry then return {'hole', ARGV[1]} end
return {'ok', entry[2][2]}
