-- Removes the key of a run, whatever is in it, and says what it held.
--
-- KEYS: run
-- ARGV: 1 channel or '', 2 notice
-- Returns {records, bytes of bodies, what was said of the run or ''}
local run = KEYS[1]
local records, bytes, facts = 0, 0, ''
if redis.call('TYPE', run)['ok'] == 'list' then
  local length = redis.call('LLEN', run)
  records, facts = math.floor((length - 1) / 2), redis.call('LINDEX', run, 0)
  for from = 1, length - 1, 128 do
    local parts = redis.call('LRANGE', run, from, from + 127)
    for part = 2, #parts, 2 do bytes = bytes + #parts[part] end
  end
end
if redis.call('DEL', run) > 0 and ARGV[1] ~= '' then redis.pcall('PUBLISH', ARGV[1], ARGV[2]) end
return {records, bytes, facts}
