-- Lists headers, without sending the bodies. Ends a page early rather than hold the server for long bodies.
--
-- KEYS: head, log
-- ARGV: 1 'asc' or 'desc', 2 the number listed last or '', 3 how many at most
-- Returns {'absent'}, {'newer', layout}, or {'ok', first kept, last kept, header, header, ...}
local head = redis.call('HMGET', KEYS[1], 'seq', 'first', 'layout', 'cut_header')
if not head[1] then return {redis.call('EXISTS', KEYS[2]) == 1 and 'torn' or 'absent'} end
if tonumber(head[3]) ~= 1 then return {'newer', head[3] or '?'} end
local reply, wanted = {'ok', head[2], head[1]}, tonumber(ARGV[3])
local first, last, after = tonumber(head[2]), tonumber(head[1]), tonumber(ARGV[2])
-- Each entry is copied with its body, so a page is cut where the bodies come to this many bytes.
local copied, most, chunk = 0, 8 * 1024 * 1024, 8
local function take(header)
  table.insert(reply, header)
  wanted = wanted - 1
end
if ARGV[1] == 'asc' then
  local from = first
  if after and after >= last then return reply end
  if after then from = math.max(first, after + 1) end
  if from == first and head[4] then take(head[4]) end
  local lower = string.format('%.0f', from) .. '-0'
  while wanted > 0 and copied < most do
    local count = math.min(chunk, wanted)
    local entries = redis.call('XRANGE', KEYS[2], lower, '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
      take(entry[2][2])
      copied = copied + #entry[2][6]
      lower = '(' .. entry[1]
    end
    if #entries < count then break end
    if copied < 65536 then chunk = 128 else chunk = 8 end
  end
else
  local upper = '+'
  if after then
    if after > last then after = last + 1 end
    upper = '(' .. string.format('%.0f', after) .. '-0'
  end
  if after and after <= first then return reply end
  while wanted > 0 and copied < most do
    local count = math.min(chunk, wanted)
    local entries = redis.call('XREVRANGE', KEYS[2], upper, '-', 'COUNT', count)
    for _, entry in ipairs(entries) do
      take(entry[2][2])
      copied = copied + #entry[2][6]
      upper = '(' .. entry[1]
    end
    if #entries < count then
      if wanted > 0 and head[4] then take(head[4]) end
      break
    end
    if copied < 65536 then chunk = 128 else chunk = 8 end
  end
end
return reply
