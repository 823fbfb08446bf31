-- Reads what makes the heads of runs.
--
-- KEYS: each run
-- Returns for each: 0 if there is none, or what is said of it, the header of its first record, and that of its last
return each(#KEYS, function(n)
  local run = KEYS[n]
  local facts = redis.call('LINDEX', run, '0')
  if not facts then return 0 end
  return {facts, redis.call('LINDEX', run, '1') or '', redis.call('LINDEX', run, '-2') or ''}
end)
