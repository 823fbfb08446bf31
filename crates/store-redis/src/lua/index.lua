-- Changes entries of the index. All keys of a shard are in one slot, so each change is one step.
--
-- KEYS: for each change the catalog of its shard
-- ARGV: 1 grace in milliseconds, then for each: operation, member, record number, number of places, and then pairs of
--       place and score
-- Returns for each 1 if the index was changed, 0 if not
local at = 2
return each(#KEYS, function(n)
  local from = at + 4
  local to = from + 2 * tonumber(ARGV[at + 3])
  local operation, member, seq = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = to
  return stand(operation, KEYS[n], member, seq, ARGV[1], from, to)
end)
