-- Removes both keys of a run, whatever is in them, and says what they held.
--
-- KEYS: head, log
-- ARGV: 1 channel or '', 2 notice
-- Returns {records, bytes of bodies, member of the index or ''}
local records, bytes, member = 0, 0, ''
if redis.call('TYPE', KEYS[1])['ok'] == 'hash' then
  member = redis.call('HGET', KEYS[1], 'member') or ''
  if redis.call('HEXISTS', KEYS[1], 'cut_header') == 1 then
    records, bytes = 1, redis.call('HSTRLEN', KEYS[1], 'cut_body')
  end
end
if redis.call('TYPE', KEYS[2])['ok'] == 'stream' then
  local lower = '-'
  while true do
    local entries = redis.call('XRANGE', KEYS[2], lower, '+', 'COUNT', 64)
    for _, entry in ipairs(entries) do
      records, bytes = records + 1, bytes + #(entry[2][6] or '')
      lower = '(' .. entry[1]
    end
    if #entries < 64 then break end
  end
end
if redis.call('DEL', KEYS[1], KEYS[2]) > 0 and ARGV[1] ~= '' then redis.pcall('PUBLISH', ARGV[1], ARGV[2]) end
return {records, bytes, member}
