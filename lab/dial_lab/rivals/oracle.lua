-- Shortest expected delay: least (in flight + 1) / r, with r what the server can serve at this
-- moment, of which the lab tells it.

local lab = ...

return {
  choose = function(servers)
    return lab.least(function(s) return (s.in_flight + 1) / math.max(s.left, 1e-9) end, servers)
  end,
}
