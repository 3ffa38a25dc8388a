-- First-come servers on a clock of their own, before which a rival's weights are followed.
--
--   local lab = loadfile("queues.lua")(PEAK_RPS, RATE_RPS)
--   local rule = loadfile("RULE.lua")(lab)
--   lab.run(rule, servers, seconds, { 0.5, 1.0, 1.0 })     what is left of each; response times, ms
--
-- Arrivals are Poisson's, costs exponential, the choice HAProxy's smooth weighted round robin.  The
-- same numbers come in every interpreter: they are of Park and Miller's generator.

local peak_rps, rate_rps = ...
local clock_s, drawn, EVERY_S = 0.0, 20240430, 0.1

local function exponential(mean)
  drawn = drawn * 16807 % 2147483647
  return -mean * math.log(drawn / 2147483647)
end

local function choose(servers)
  local best, all = servers[1], 0
  for _, s in ipairs(servers) do
    s.credit, all = s.credit + s.weight, all + s.weight
    if s.credit > best.credit then best = s end
  end
  best.credit = best.credit - all
  return best
end

local function tick(rule, servers)
  for _, s in ipairs(servers) do
    while s.answers[1] and s.answers[1].at_s <= clock_s do
      rule.done(s, table.remove(s.answers, 1).took_ms, 0)
    end
  end
  rule.tick(servers, EVERY_S)
  for _, s in ipairs(servers) do s.weight = s.wants or s.weight end
end

local function run(rule, servers, seconds, left)
  local until_s, ticks_s, at_s, took_ms = clock_s + seconds, clock_s, clock_s, {}
  for i, s in ipairs(servers) do
    s.credit, s.answers, s.free_s = 0, s.answers or {}, s.free_s or clock_s
    s.mean_s = 1 / (peak_rps * left[i])
  end
  repeat
    at_s = at_s + exponential(1 / rate_rps)
    while ticks_s <= math.min(at_s, until_s) do
      clock_s, ticks_s = ticks_s, ticks_s + EVERY_S
      tick(rule, servers)
    end
    local s = choose(servers)
    s.free_s = math.max(s.free_s, at_s) + exponential(s.mean_s)
    took_ms[#took_ms + 1] = 1e3 * (s.free_s - at_s)
    table.insert(s.answers, { at_s = s.free_s, took_ms = took_ms[#took_ms] })
  until at_s >= until_s
  clock_s = until_s
  return took_ms
end

local function servers(number)
  local all = {}
  for i = 1, number do all[i] = { name = "s" .. i, weight = 100, configured = 100 } end
  return all
end

local function mean(values)
  local sum = 0.0
  for _, value in ipairs(values) do sum = sum + value end
  return sum / #values
end

return { now_s = function() return clock_s end, run = run, servers = servers, mean = mean }
