-- Servers with more in flight than the 0.84 quantile of what was lately in flight are hot.  The cold
-- one of the lowest latency, by what took as many in flight; if all are hot the one with least in
-- flight.  (Wydrowski et al., NSDI 2024.)  Its original probes some servers drawn by chance, this one
-- sees all of them.

local lab = ...

local HOT_QUANTILE = 2 ^ -0.25 -- 0.84: Prequal's Q_RIF
local REMEMBERED = 64 -- readings of requests in flight, 16 a server at four servers
local RECENT = 8 -- latencies of one server at one number in flight
local MOST_IN_FLIGHT = 16 -- above it latencies are remembered as of this many

local readings, next_reading = {}, 1 -- of requests in flight, by server chosen from

local function hot_above()
  local sorted = { table.unpack(readings) }
  table.sort(sorted)
  return sorted[math.ceil(HOT_QUANTILE * #sorted)] or math.huge
end

local function latency_ms(s)
  -- Of the number in flight that is nearest to what it would be with this request.
  local wanted = math.min(s.in_flight, MOST_IN_FLIGHT)
  local took_ms = s.took_ms or {}
  for distance = 0, MOST_IN_FLIGHT do
    for _, held in ipairs({ wanted - distance, wanted + distance }) do
      local took = took_ms[held]
      if took and #took > 0 then
        local sorted = { table.unpack(took) }
        table.sort(sorted)
        return sorted[math.ceil(#sorted / 2)]
      end
    end
  end
  return 0.0 -- nothing is known of it: ask it
end

return {
  choose = function(servers)
    for _, each in ipairs(servers) do
      readings[next_reading] = each.in_flight
      next_reading = next_reading % REMEMBERED + 1
    end
    local limit, cold = hot_above(), {}
    for _, each in ipairs(servers) do
      if each.in_flight <= limit then cold[#cold + 1] = each end
    end
    if #cold == 0 then
      return lab.least(function(s) return s.in_flight end, servers)
    end
    return lab.least(latency_ms, cold)
  end,
  done = function(s, took_ms, held)
    local at = math.min(held, MOST_IN_FLIGHT)
    s.took_ms = s.took_ms or {}
    local took = s.took_ms[at] or {}
    s.took_ms[at] = took
    took[#took + 1] = took_ms
    if #took > RECENT then table.remove(took, 1) end
  end,
}
