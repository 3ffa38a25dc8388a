-- Policies that HAProxy does not have, for one backend; HAProxy 2.6 gives a script no arguments.
--
--   setenv RIVAL POLICY                                    in global
--   setenv RIVAL_SERVICE BACKEND
--   lua-load-per-thread rivals.lua
--   use-server %[lua.rival] if TRUE                        in the backend
--   http-response lua.rival_done                           in the backend
--
-- Ours, written from what their authors publish; each looks at every server, where its original
-- looks at a few drawn ones.  They are there to be measured against, in HAProxy's own data path.
--
--   oracle     Shortest expected delay: least (in flight + 1) / r, with r the server's weight, which
--              the lab sets to what the server can truly serve at that moment.
--   peak-ewma  Least (in flight + 1) x EWMA of the response time; a response slower than the
--              average replaces it at once, faster ones by 1 - e^(-t/10 s).  (Finagle's PeakEwma.)
--   prequal    Servers with more in flight than the 0.84 quantile of what was lately in flight are
--              hot.  The cold one of the lowest latency, by what took as many in flight; if
--              all are hot the one with least in flight.  (Wydrowski et al., NSDI 2024.)

local policy, service = os.getenv("RIVAL"), os.getenv("RIVAL_SERVICE")

local TAU_S = 10.0 -- Finagle's default decay time
local HOT_QUANTILE = 2 ^ -0.25 -- 0.84: Prequal's Q_RIF
local REMEMBERED = 64 -- readings of requests in flight, 16 a server at four servers
local RECENT = 8 -- latencies of one server at one number in flight
local MOST_IN_FLIGHT = 16 -- above it latencies are remembered as of this many

local servers = {} -- by name
local order = {} -- names, as in the configuration
local tick = 0 -- requests so far; who was chosen least lately wins a tie

local function now_s()
  local now = core.now()
  return now.sec + now.usec / 1e6
end

local function server(name)
  return { name = name, in_flight = 0, weight = 1.0, chosen = 0, ewma_ms = 0.0, at_s = now_s(), took_ms = {} }
end

local function least(cost, among)
  local best, best_cost
  for _, each in ipairs(among) do
    local this = cost(each)
    if not best or this < best_cost or (this == best_cost and each.chosen < best.chosen) then
      best, best_cost = each, this
    end
  end
  return best
end

local policies = {}

policies["oracle"] = {
  choose = function(all)
    return least(function(s) return (s.in_flight + 1) / math.max(s.weight, 1e-9) end, all)
  end,
  done = function() end,
}

policies["peak-ewma"] = {
  choose = function(all)
    local at_s = now_s()
    return least(function(s)
      return (s.in_flight + 1) * s.ewma_ms * math.exp(-(at_s - s.at_s) / TAU_S)
    end, all)
  end,
  done = function(s, took_ms)
    local at_s = now_s()
    local left = math.exp(-(at_s - s.at_s) / TAU_S)
    if took_ms > s.ewma_ms then
      s.ewma_ms = took_ms
    else
      s.ewma_ms = s.ewma_ms * left + took_ms * (1.0 - left)
    end
    s.at_s = at_s
  end,
}

local readings, next_reading = {}, 1 -- of requests in flight, by server chosen from

local function hot_above()
  local sorted = { table.unpack(readings) }
  table.sort(sorted)
  return sorted[math.ceil(HOT_QUANTILE * #sorted)] or math.huge
end

local function latency_ms(s)
  -- Of the number in flight that is nearest to what it would be with this request.
  local wanted = math.min(s.in_flight, MOST_IN_FLIGHT)
  for distance = 0, MOST_IN_FLIGHT do
    for _, held in ipairs({ wanted - distance, wanted + distance }) do
      local took = s.took_ms[held]
      if took and #took > 0 then
        local sorted = { table.unpack(took) }
        table.sort(sorted)
        return sorted[math.ceil(#sorted / 2)]
      end
    end
  end
  return 0.0 -- nothing is known of it: ask it
end

policies["prequal"] = {
  choose = function(all)
    for _, each in ipairs(all) do
      readings[next_reading] = each.in_flight
      next_reading = next_reading % REMEMBERED + 1
    end
    local limit, cold = hot_above(), {}
    for _, each in ipairs(all) do
      if each.in_flight <= limit then cold[#cold + 1] = each end
    end
    if #cold == 0 then
      return least(function(s) return s.in_flight end, all)
    end
    return least(latency_ms, cold)
  end,
  done = function(s, took_ms, held)
    local at = math.min(held, MOST_IN_FLIGHT)
    local took = s.took_ms[at] or {}
    s.took_ms[at] = took
    took[#took + 1] = took_ms
    if #took > RECENT then table.remove(took, 1) end
  end,
}

local rule = policies[policy] or error("rivals.lua: no policy '" .. tostring(policy) .. "'")

local function all_servers()
  local all = {}
  for i, name in ipairs(order) do all[i] = servers[name] end
  return all
end

-- Weights are the lab's word on what a server can serve; requests in flight are HAProxy's own.
local function read_servers()
  for name, each in pairs(core.backends[service].servers) do
    local stats = each:get_stats()
    if not servers[name] then
      servers[name] = server(name)
      order[#order + 1] = name
      table.sort(order)
    end
    servers[name].weight = tonumber(stats.weight) or 1.0
    servers[name].in_flight = tonumber(stats.scur) or servers[name].in_flight
  end
end

core.register_task(function()
  while true do
    read_servers()
    core.msleep(50)
  end
end)

core.register_fetches("rival", function(txn)
  if #order == 0 then read_servers() end
  local chosen = rule.choose(all_servers())
  tick = tick + 1
  chosen.chosen = tick
  txn:set_priv({ chosen, now_s(), chosen.in_flight })
  chosen.in_flight = chosen.in_flight + 1
  return chosen.name
end)

core.register_action("rival_done", { "http-res" }, function(txn)
  local asked = txn:get_priv()
  if not asked then return end
  local chosen, since_s, held = table.unpack(asked)
  txn:set_priv(nil)
  chosen.in_flight = math.max(chosen.in_flight - 1, 0)
  rule.done(chosen, 1e3 * (now_s() - since_s), held)
end)
