-- Reads the newest base at or before a record, and the records from there up to it.
--
-- KEYS: head, log
-- ARGV: 1 'latest', 'seq' or 'id', 2 the number or the id
-- Returns {'absent'}, {'newer', layout}, {'missing'}, {'hole', seq}, or
--         {'ok', first number returned, last number, base at the cut {header, body} or {}, entries}
local head = redis.call('HMGET', KEYS[1], 'seq', 'first', 'layout', 'cut_header')
if not head[1] then return {redis.call('EXISTS', KEYS[2]) == 1 and 'torn' or 'absent'} end
if tonumber(head[3]) ~= 1 then return {'newer', head[3] or '?'} end
local first, last = tonumber(head[2]), tonumber(head[1])
local at = last
if ARGV[1] == 'seq' then
  at = tonumber(ARGV[2])
elseif ARGV[1] == 'id' then
  -- From the head backwards: what is looked up by id is rarely far from it. A header begins with version, number and id.
  local upper = '+'
  local function is_wanted(header) return string.match(header, '^%[%d+,%d+,"([^"]*)"') == ARGV[2] end
  at = nil
  while not at do
    local entries = redis.call('XREVRANGE', KEYS[2], upper, '-', 'COUNT', 16)
    for _, entry in ipairs(entries) do
      if is_wanted(entry[2][2]) then
        at = tonumber(string.match(entry[1], '^%d+'))
        break
      end
    end
    if #entries < 16 then break end
    upper = '(' .. entries[16][1]
  end
  if not at and head[4] and is_wanted(head[4]) then at = first end
  if not at then return {'missing'} end
end
if at > last or at < first then return {'missing'} end
local from, cut = first, {}
if not (at == first and head[4]) then
  local seq = string.format('%.0f', at)
  local entry = redis.call('XRANGE', KEYS[2], seq .. '-1', seq .. '-1')[1]
  if not entry then return {'hole', seq} end
  from = math.max(first, tonumber(entry[2][4]))
end
if from == first and head[4] then cut = redis.call('HMGET', KEYS[1], 'cut_header', 'cut_body') end
local from_text, at_text = string.format('%.0f', from), string.format('%.0f', at)
return {'ok', from_text, at_text, cut, redis.call('XRANGE', KEYS[2], from_text .. '-0', at_text .. '-1')}
