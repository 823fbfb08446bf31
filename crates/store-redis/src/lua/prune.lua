-- Makes the record at the cut the oldest, and a base, and drops what is before it: in one step, so that there is no garbage.
--
-- KEYS: head, log
-- ARGV: 1 seq, 2 the header found there before, 3 header of the base or '', 4 its body, 5 channel or '', 6 notice
-- Returns {'absent'}, {'changed'}, or {'ok', records dropped, bytes of bodies dropped}
local head = redis.call('HMGET', KEYS[1], 'seq', 'first', 'base', 'cut_header')
if not head[1] then return {'absent'} end
local at, first = tonumber(ARGV[1]), tonumber(head[2])
if at < first or at > tonumber(head[1]) then return {'changed'} end
local cut_is_entry = not (at == first and head[4])
local found = head[4]
if cut_is_entry then
  local entry = redis.call('XRANGE', KEYS[2], ARGV[1] .. '-1', ARGV[1] .. '-1')[1]
  found = entry and entry[2][2]
end
if found ~= ARGV[2] then return {'changed'} end
local records, bytes = 0, 0
if at > first then
  if head[4] then
    records, bytes = 1, redis.call('HSTRLEN', KEYS[1], 'cut_body')
  end
  local lower = '-'
  while true do
    local entries = redis.call('XRANGE', KEYS[2], lower, ARGV[1] .. '-0', 'COUNT', 64)
    for _, entry in ipairs(entries) do
      records, bytes = records + 1, bytes + #entry[2][6]
      lower = '(' .. entry[1]
    end
    if #entries < 64 then break end
  end
end
redis.call('HSET', KEYS[1], 'first', ARGV[1])
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'cut_header', ARGV[3], 'cut_body', ARGV[4])
  redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[1] .. '-2')
elseif cut_is_entry then
  redis.call('HDEL', KEYS[1], 'cut_header', 'cut_body')
  redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[1] .. '-0')
end
if tonumber(head[3]) < at then redis.call('HSET', KEYS[1], 'base', ARGV[1]) end
if ARGV[5] ~= '' then redis.pcall('PUBLISH', ARGV[5], ARGV[6]) end
return {'ok', records, bytes}
