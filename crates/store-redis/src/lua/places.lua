-- Keeps the entries of one run in the index of its shard.
--
-- The catalog holds for each member: g, the newest record that a writer has announced; t, when, by the server's clock;
-- p, the places the member stands in, each with its score. A member names one generation of a run, so that a purge, or a start
-- that lost, never touches the entries of another generation.
--
-- A place is taken before the record that needs it is written, or in one step with it, and given up only by someone who
-- knows a record that is not older than every announcement. So a run may stand in a place too many, never in one too few.

local function milliseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
end

-- Operations: announce (add the places), settle (these places and no other), forget (the member is no run any more),
--             lapse (no run was found: forget it, unless a writer announced it within so many milliseconds of grace, and as
--             many more as the reader has waited since it looked, which stand in place of the record's number)
-- Places and their scores are the arguments from one position up to before another. Returns whether the index was changed.
local function stand(operation, catalog, member, seq, grace, from, to)
  local prefix = string.sub(catalog, 1, -8)
  local function leave(place)
    local key = prefix .. place
    redis.call('ZREM', key, member)
    if string.sub(place, 1, 2) == 'o:' and redis.call('EXISTS', key) == 0 then
      redis.call('SREM', prefix .. 'owners', string.sub(place, 3))
    end
  end

  local text = redis.call('HGET', catalog, member)
  local entry = text and cjson.decode(text)
  if operation == 'forget' or operation == 'lapse' then
    if not entry or operation == 'lapse' and milliseconds() - entry.t < tonumber(grace) + tonumber(seq) then return 0 end
    for place in pairs(entry.p) do leave(place) end
    redis.call('HDEL', catalog, member)
    return 1
  end

  entry = entry or {g = -1, t = milliseconds(), p = {}}
  local wanted = {}
  seq = tonumber(seq)
  for at = from, to - 1, 2 do
    local place, score = ARGV[at], ARGV[at + 1]
    wanted[place] = true
    -- Until it is settled which of two wake-up times holds, the earlier one counts.
    local known = entry.p[place]
    if known and tonumber(known) < tonumber(score) and (operation == 'announce' or entry.g > seq) then score = known end
    redis.call('ZADD', prefix .. place, score, member)
    if string.sub(place, 1, 2) == 'o:' then redis.call('SADD', prefix .. 'owners', string.sub(place, 3)) end
    entry.p[place] = score
  end
  if operation == 'announce' then
    entry.t = milliseconds()
  elseif entry.g <= seq then
    local stay = {}
    for place, score in pairs(entry.p) do
      if wanted[place] then stay[place] = score else leave(place) end
    end
    entry.p = stay
  end
  entry.g = math.max(entry.g, seq)
  redis.call('HSET', catalog, member, cjson.encode(entry))
  return 1
end
