-- Least (in flight + 1) x EWMA of the response time; a response slower than the average replaces it
-- at once, faster ones by 1 - e^(-t/10 s).  (Finagle's PeakEwma.)  Its original looks at two servers
-- drawn by chance, this one at all of them.

local lab = ...

local TAU_S = 10.0 -- Finagle's default decay time

return {
  choose = function(servers)
    local at_s = lab.now_s()
    return lab.least(function(s)
      return (s.in_flight + 1) * (s.ewma_ms or 0.0) * math.exp(-(at_s - (s.at_s or at_s)) / TAU_S)
    end, servers)
  end,
  done = function(s, took_ms)
    local at_s = lab.now_s()
    local left = math.exp(-(at_s - (s.at_s or at_s)) / TAU_S)
    if took_ms > (s.ewma_ms or 0.0) then
      s.ewma_ms = took_ms
    else
      s.ewma_ms = s.ewma_ms * left + took_ms * (1.0 - left)
    end
    s.at_s = at_s
  end,
}
