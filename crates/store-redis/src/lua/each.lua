-- Does one thing for each of several runs, so that a failure in one harms no other. Returns a number if all went well with
-- nothing to say, and otherwise for each run what was said, or its error.
local function each(count, one)
  local replies, is_plain = {}, true
  for n = 1, count do
    local is_done, reply = pcall(one, n)
    if not is_done then
      -- The server's own errors begin with their code; those of Lua with a place in the script.
      local text = type(reply) == 'table' and reply.err or tostring(reply)
      text = string.gsub(text, '^-', '')
      reply = {err = string.find(text, '^%u+ ') and text or 'ERR ' .. text}
    end
    if reply ~= 1 then is_plain = false end
    replies[n] = reply
  end
  if is_plain then return count end
  return replies
end
