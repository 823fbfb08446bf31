-- Appends records to runs whose head is the expected one. All or nothing for each run: every check comes before its first
-- write.
--
-- KEYS: each run
-- ARGV: 1 channel or '', 2 where a run's name begins in its key, 3 what ends the notice, 4 '1' if replicas are waited for
--       or '', then for each run:
--       - id and number that the header of the head must begin with; '' if there must be no run
--       - '1' for one record and nothing else, or 'n;keep;places', with n the number of records, keep '' or for how many
--         milliseconds to keep the run or '-' for good or '?' if nothing is to be written in any case, and places how many
--         arguments about the index follow: none, or catalog, member, record number and then pairs of place and score
--       - what is said of the run at its start, if there must be none
--       - for each record: header, body
-- Returns for each: 1, {'absent'}, {'broken'}, or {'differs', header of the head, what is said of the run, headers}, with the
--                   headers of as many records as were given, newest first, if the last one given is the head
-- A number as an argument is formatted as if it had a fraction, which takes as long as the command itself.
local at, told, name_at, call = 5, {}, tonumber(ARGV[2]), redis.call
local replies = each(#KEYS, function(n)
  local run, expected, what = KEYS[n], ARGV[at], ARGV[at + 1]
  local count, keep, places = 1, '', 0
  if what ~= '1' then
    count, keep, places = string.match(what, '^(%d+);(.*);(%d+)$')
    count, places = tonumber(count), tonumber(places)
  end
  local index = at + 2
  local facts = index + places
  local first = expected == '' and facts + 1 or facts
  -- Before anything can fail, for the sake of those that follow.
  at = first + 2 * count

  local head = call('LINDEX', run, '-2')
  if head then
    if expected == '' or keep == '?' or string.sub(head, 1, #expected) ~= expected then
      local newest = {}
      if string.sub(head, 1, 16) == string.sub(ARGV[at - 2], 1, 16) then
        local most = math.min(count, math.floor((call('LLEN', run) - 1) / 2))
        for back = 1, most do newest[back] = call('LINDEX', run, -2 * back) end
        -- WAIT waits for what the connection wrote, and the record may have come by another one.
        if ARGV[4] ~= '' then call('LSET', run, '-2', head) end
      end
      return {'differs', head, call('LINDEX', run, '0'), newest}
    end
  elseif call('EXISTS', run) == 1 then
    return {'broken'}
  elseif expected ~= '' then
    return {'absent'}
  end

  if places > 0 then
    stand('settle', ARGV[index], ARGV[index + 1], ARGV[index + 2], 0, index + 3, facts)
  end
  if count == 1 and head then
    call('RPUSH', run, ARGV[first], ARGV[first + 1])
  else
    -- What is said of the run comes first, with its first record.
    local from, last = expected == '' and facts or first, at - 1
    while from <= last do
      -- Lua takes some thousand values at once.
      local to = math.min(from + 999, last)
      call('RPUSH', run, unpack(ARGV, from, to))
      from = to + 1
    end
  end
  if keep == '-' then
    call('PERSIST', run)
  elseif keep ~= '' then
    call('PEXPIRE', run, keep)
  end
  told[#told + 1] = string.sub(run, name_at, -2)
  return 1
end)
-- No record depends on a notice, and after a write nothing may fail.
if ARGV[1] ~= '' and #told > 0 then redis.pcall('PUBLISH', ARGV[1], table.concat(told, ' ') .. ARGV[3]) end
return replies
