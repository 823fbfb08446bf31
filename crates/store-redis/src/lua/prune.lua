-- Makes a record the oldest, and a base, and drops what is before it: in one step, so that there is no garbage.
--
-- KEYS: run
-- ARGV: 1 seq, 2 the header found there before, 3 header of the base or '', 4 its body, 5 channel or '', 6 notice
-- Returns {'absent'}, {'broken'}, {'stranger'}, {'changed'}, or {'ok', records dropped, bytes of bodies dropped}
local run, at = KEYS[1], tonumber(ARGV[1])
local first, last = bounds(run)
if not first then return last end
if at < first or at > last then return {'changed'} end
local place = 1 + 2 * (at - first)
if redis.call('LINDEX', run, place) ~= ARGV[2] then return {'changed'} end
local bytes = 0
for from = 1, place - 1, 128 do
  local parts = redis.call('LRANGE', run, from, math.min(from + 127, place - 1))
  for part = 2, #parts, 2 do bytes = bytes + #parts[part] end
end
if place > 1 then
  local facts = redis.call('LINDEX', run, 0)
  redis.call('LTRIM', run, place, -1)
  redis.call('LPUSH', run, facts)
end
if ARGV[3] ~= '' then
  redis.call('LSET', run, 1, ARGV[3])
  redis.call('LSET', run, 2, ARGV[4])
end
if ARGV[5] ~= '' then redis.pcall('PUBLISH', ARGV[5], ARGV[6]) end
return {'ok', at - first, bytes}
