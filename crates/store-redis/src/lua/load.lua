-- Reads the newest base at or before a record, and the records from there up to it.
--
-- KEYS: run
-- ARGV: 1 'latest', 'seq' or 'id', 2 the number, or the id in 16 bytes
-- Returns {'absent'}, {'broken'}, {'stranger'}, {'missing'}, {'hole', seq},
--         or {'ok', first number returned, last number, header, body, header, body, ...}
local run = KEYS[1]
local first, last, count = bounds(run)
if not first then return last end
local at = last
if ARGV[1] == 'seq' then
  at = tonumber(ARGV[2])
elseif ARGV[1] == 'id' then
  -- From the head backwards: what is looked up by id is rarely far from it.
  at = nil
  for back = 0, count - 1 do
    if string.sub(redis.call('LINDEX', run, -2 * back - 2), 1, 16) == ARGV[2] then
      at = last - back
      break
    end
  end
end
if not at or at > last or at < first then
  -- The first record that is kept is a base. If it is not, the one before it is not pruned but lost.
  local _, back = read(redis.call('LINDEX', run, 1))
  if back ~= 0 and at and at < first then return {'hole', first - 1} end
  return {'missing'}
end
local from_end = last - at
local _, back = read(redis.call('LINDEX', run, -2 * from_end - 2))
if not back then return {'hole', at} end
local from = math.max(first, at - back)
local reply = redis.call('LRANGE', run, -2 * (last - from) - 2, -2 * from_end - 1)
return {'ok', from, at, reply}
