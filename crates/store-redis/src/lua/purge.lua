-- Removes the key of a run, whatever is in it, unless a head is expected that it does not have, and says what it held.
--
-- KEYS: run
-- ARGV: 1 what the header of the head must begin with, or '', 2 channel or '', 3 notice
-- Returns {'broken'}, {'stranger'}, {'differs', header of the head}, or {'ok', records, bytes of bodies, what was said of the run or ''}
local run, expected = KEYS[1], ARGV[1]
local records, bytes, facts = 0, 0, ''
local kind = redis.call('TYPE', run)['ok']
if expected ~= '' and kind ~= 'none' then
  local head = kind == 'list' and redis.call('LINDEX', run, -2)
  if not head then return {'broken'} end
  if not names(run, redis.call('LINDEX', run, '0')) then return {'stranger'} end
  if string.sub(head, 1, #expected) ~= expected then return {'differs', head} end
end
if kind == 'list' then
  local length = redis.call('LLEN', run)
  records, facts = math.floor((length - 1) / 2), redis.call('LINDEX', run, 0)
  for from = 1, length - 1, 128 do
    local parts = redis.call('LRANGE', run, from, from + 127)
    for part = 2, #parts, 2 do bytes = bytes + #parts[part] end
  end
end
if redis.call('DEL', run) > 0 and ARGV[2] ~= '' then redis.pcall('PUBLISH', ARGV[2], ARGV[3]) end
return {'ok', records, bytes, facts}
