-- What scripts know of a header: 16 bytes of id, and then as varints its number, its format and how many records before it
-- the newest base is. These four come first in every version.

-- Reads a varint of a text from a position on; returns it and the position behind it, or nothing if the text ends first.
local function varint(text, at)
  local value, scale = 0, 1
  while true do
    local byte = string.byte(text, at)
    if not byte then return end
    at = at + 1
    if byte < 128 then return value + byte * scale, at end
    value, scale = value + (byte - 128) * scale, scale * 128
  end
end

-- Returns the number of a record, and how far back its newest base is; nothing if it is no header.
local function read(header)
  local seq, at = varint(header or '', 17)
  local _, back
  if at then _, at = varint(header, at) end
  if at then back = varint(header, at) end
  if back then return seq, back end
end

-- Tells whether a list is that of the run whose key it has: a list that was renamed, or restored under another key, is another run's.
local function names(run, said)
  local name = string.match(run, '{([^{}]*)}$')
  local member = string.match(said or '', '^{"version":%d+,"member":"%x+,([^"]*)"')
  return name and member and string.sub(member, 1, #name + 1) == name .. ','
end

-- Returns the numbers of the first and the last record of a run and how many there are; or nothing and what is to be said.
local function bounds(run)
  local count = math.floor((redis.call('LLEN', run) - 1) / 2)
  if count < 1 then return nil, {redis.call('EXISTS', run) == 1 and 'broken' or 'absent'} end
  local last = read(redis.call('LINDEX', run, '-2'))
  if not last then return nil, {'broken'} end
  if not names(run, redis.call('LINDEX', run, '0')) then return nil, {'stranger'} end
  return last - count + 1, last, count
end
