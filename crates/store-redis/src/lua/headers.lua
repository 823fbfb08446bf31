-- Lists headers, without sending the bodies. Ends early rather than hold the server for long bodies.
--
-- KEYS: run
-- ARGV: 1 'from' or 'upto', 2 the number at which the range begins or ends, 3 how many at most
-- Returns {'absent'}, {'broken'}, {'stranger'}, or {'ok', first kept, last kept, header, header, ...}, from the anchor on
local run = KEYS[1]
local first, last = bounds(run)
if not first then return last end
local reply, wanted, anchor = {'ok', first, last}, tonumber(ARGV[3]), tonumber(ARGV[2])
-- Each record is copied with its body, so an answer is cut where the bodies come to this many bytes.
local copied, most, chunk = 0, 8 * 1024 * 1024, 8
local is_up = ARGV[1] == 'from'
local seq = is_up and math.max(first, anchor) or math.min(last, anchor)
while wanted > 0 and copied < most and seq >= first and seq <= last do
  local size = math.min(chunk, wanted, is_up and last - seq + 1 or seq - first + 1)
  local lowest = is_up and seq or seq - size + 1
  local at = 1 + 2 * (lowest - first)
  local parts = redis.call('LRANGE', run, at, at + 2 * size - 1)
  for n = 1, size do
    local part = is_up and 2 * n or 2 * (size - n + 1)
    reply[#reply + 1] = parts[part - 1]
    copied = copied + #parts[part]
  end
  seq = is_up and seq + size or seq - size
  wanted = wanted - size
  chunk = copied < 65536 and 128 or 8
end
return reply
