-- Appends records to one run if its head is the expected one. All or nothing: every check comes before the first write.
--
-- KEYS: head, log
-- ARGV: 1 expected seq or '', 2 expected id, 3 places, 4 facts or '', 5 header of the last record, 6 milliseconds to keep
--       a finished run or '0', 7 channel or '', 8 notice, 9 member of the index or '', 10 number of records, then for each:
--       seq, id, '1' if it is a base, header, body
-- Returns {'ok', '1' if the places are others than before}, {'absent'}, {'newer', layout}, {'broken', what}, or
--         {'differs', seq, id, member, facts, headers of the newest records if the last id given is the head's}
local head = redis.call('HMGET', KEYS[1], 'seq', 'id', 'places', 'layout', 'base', 'member')
local count = tonumber(ARGV[10])
local last_id = ARGV[10 + (count - 1) * 5 + 2]
local base = head[5]
if head[1] then
  if head[4] ~= '1' then return {'newer', head[4] or '?'} end
  if ARGV[1] == '' or head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then
    local reply = {'differs', head[1], head[2], head[6], '', {}}
    if head[2] == last_id then
      local cut = redis.call('HMGET', KEYS[1], 'facts', 'cut_header')
      reply[5] = cut[1] or ''
      for _, entry in ipairs(redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', count)) do
        table.insert(reply[6], entry[2][2])
      end
      if cut[2] and #reply[6] < count then table.insert(reply[6], cut[2]) end
    end
    return reply
  end
elseif redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  return {'broken', 'the head of the run is gone'}
elseif ARGV[1] ~= '' then
  return {'absent'}
end
local at = 11
for _ = 1, count do
  if ARGV[at + 2] == '1' then base = ARGV[at] end
  redis.call('XADD', KEYS[2], ARGV[at] .. '-1', 'h', ARGV[at + 3], 'p', base, 'b', ARGV[at + 4])
  at = at + 5
end
redis.call('HSET', KEYS[1], 'seq', ARGV[at - 5], 'id', last_id, 'base', base, 'places', ARGV[3], 'header', ARGV[5])
if not head[1] then
  redis.call('HSET', KEYS[1], 'layout', '1', 'first', '0', 'member', ARGV[9], 'facts', ARGV[4])
end
if ARGV[6] ~= '0' then
  -- One moment for both keys, so that neither is ever there without the other.
  local now = redis.call('TIME')
  local moment = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) + tonumber(ARGV[6])
  moment = string.format('%.0f', moment)
  redis.call('PEXPIREAT', KEYS[1], moment)
  redis.call('PEXPIREAT', KEYS[2], moment)
elseif redis.call('PTTL', KEYS[1]) >= 0 then
  redis.call('PERSIST', KEYS[1])
  redis.call('PERSIST', KEYS[2])
end
-- Nobody's record depends on a notice, and after a write nothing may fail.
if ARGV[7] ~= '' then redis.pcall('PUBLISH', ARGV[7], ARGV[8]) end
return {'ok', head[3] == ARGV[3] and '0' or '1'}
