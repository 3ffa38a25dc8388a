-- A curve of mean latency against share for each server, and the shares of the least mean latency by
-- them.  (Gandhi and Narayana, KnapsackLB: Enabling Performance-Aware Layer-4 Load Balancing, 2024,
-- arXiv 2404.17783.)
--
-- explore   All servers get the even share; then, one after the other, each a quarter of it, which is
--           as good as idle, and twice more than before: share * (1 + idle latency / latency), a big
--           step while it has capacity to spare, a small one near its limit.  A polynomial of degree
--           2 goes through what was seen of each at all these shares.
-- follow    A server that is slower (or faster) than its curve says at its share looks as if it had
--           another share s' of what it was: its curve is stretched by share / s'.  That one is does
--           not say whether capacity or traffic has changed, and need not: if all are, all curves are
--           stretched alike, and the shares stay.
-- solve     Each server is given a whole number of units of share, at least one, 100 in all, so that
--           the sum of units x latency is least: a knapsack.
--
-- Written from the paper's abstract and summaries of it; its text was not at hand.  So its authors'
-- are: active probes, few points a server and a curve fitted to them, an integer linear program for
-- the weights of the least mean latency, and curves that are adjusted, not measured anew, when traffic
-- or capacity changes.  All else, and every constant, is ours: chosen so that it does best before
-- simulated queues (lab/tests/test_knapsack.py), and not checked against the paper's own.
--
-- Reduced against it:
--   - The curves are learnt once, in a quiet time.  Nobody explores again when servers stay different.
--   - Servers are few and known from the start: none joins, and none is found to have failed.
--   - Traffic and capacity are not told apart, see `follow`.
-- Kinder than it:
--   - It sees every answer, where the original sends probes from a host of its own and knows no
--     others; its mean is of all requests, where the original's is over servers.
--   - It follows every second.
--   - The optimum is exact (dynamic programming), where the original hands an integer linear program
--     to a solver, in several rounds for many servers.
--
--   setenv RIVAL_MEMORY FILE     where curves are kept for the next one
--   setenv RIVAL_SETTING S       seconds of a step of exploring, at least; 5 if not given

local lab = ...

local STEP_S = lab.setting or 5.0
local SETTLE = 0.25 -- of a step, before anything counts: queues change slowly
local ENOUGH = 100 -- answers of each server in a step: a mean of so many is off by a tenth, or two
local IDLE = 0.25 -- of the even share: at half load a tenth of what a server can serve
local KEPT = 0.5 -- of the even share, left to each of the others while one is explored
local FULL = 5.0 -- times the idle latency: 0.8 of what an M/M/1 can serve; more only makes a queue
local UNITS = 100
local FOLLOW_S = 1.0
local FORGET_S = 5.0 -- of answers that say nothing new
local LEAST_SAMPLES = 10
local UNSURE = 2.0 -- standard errors of a mean; nearer to its curve, nothing has changed
local FARTHEST = 4.0 -- even shares: beyond it a curve says nothing

-- Least squares of y = sum of c[p] x^p over the powers by the normal equations; c and the error.
-- Errors are relative: a mean is off by a part of itself, so slow points are the noisy ones.
local function regression(points, powers)
  local n, m = #powers, {}
  for i = 1, n do
    m[i] = {}
    for j = 1, n + 1 do m[i][j] = 0.0 end
  end
  for _, at in ipairs(points) do
    for i = 1, n do
      for j = 1, n do m[i][j] = m[i][j] + at.share ^ (powers[i] + powers[j]) / at.ms ^ 2 end
      m[i][n + 1] = m[i][n + 1] + at.share ^ powers[i] / at.ms
    end
  end
  -- The matrix is positive definite, so elimination needs no pivots.
  for i = 1, n do
    for k = 1, n do
      if k ~= i then
        local times = m[k][i] / m[i][i]
        for j = i, n + 1 do m[k][j] = m[k][j] - times * m[i][j] end
      end
    end
  end
  local c, squares = { 0.0, 0.0, 0.0 }, 0.0
  for i = 1, n do c[powers[i] + 1] = m[i][n + 1] / m[i][i] end
  for _, at in ipairs(points) do
    squares = squares + ((c[1] + c[2] * at.share + c[3] * at.share ^ 2) / at.ms - 1.0) ^ 2
  end
  return c, squares
end

-- The polynomial of degree 2 nearest to the points, none of whose coefficients is negative: more
-- requests never make a server faster, whatever noise says.
local function fit(points)
  local best, least
  for _, powers in ipairs({ { 0, 1, 2 }, { 0, 2 }, { 0, 1 }, { 1, 2 }, { 2 }, { 1 }, { 0 } }) do
    local c, squares = regression(points, powers)
    if math.min(table.unpack(c)) >= 0.0 and (not least or squares < least) then
      best, least = c, squares
    end
  end
  return best
end

local function latency_ms(curve, share)
  local c, x = curve.c, share / curve.stretch
  return math.max(c[1] + c[2] * x + c[3] * x ^ 2, 1e-3)
end

-- The share of the unstretched curve, from `low` to `high`, at which it is `ms`.
local function share_at(c, ms, low, high)
  for _ = 1, 40 do
    local middle = (low + high) / 2
    if latency_ms({ c = c, stretch = 1.0 }, middle) < ms then low = middle else high = middle end
  end
  return (low + high) / 2
end

-- Units of each server, in order.
local function solve(curves)
  local best = { [0] = { cost = 0.0 } }
  for n, curve in ipairs(curves) do
    local with, last, cost_of = {}, n == #curves, {}
    for units = 1, UNITS do cost_of[units] = units * latency_ms(curve, units / UNITS) end
    for used, so_far in pairs(best) do
      local most = UNITS - used - (#curves - n)
      for units = last and most or 1, most do
        local cost = so_far.cost + cost_of[units]
        local there = with[used + units]
        if not there or cost < there.cost then
          with[used + units] = { cost = cost, units = units, before = so_far }
        end
      end
    end
    best = with
  end
  local found, at = {}, best[UNITS]
  for n = #curves, 1, -1 do
    found[n], at = at.units, at.before
  end
  return found
end

local function give(servers, shares)
  for i, s in ipairs(servers) do
    s.share = shares[i]
    s.wants = math.max(1, math.floor(2 * UNITS * shares[i] + 0.5))
  end
end

local function keep(servers, path)
  local file = path and io.open(path, "w")
  if not file then return end
  for _, s in ipairs(servers) do
    file:write(string.format("%s %.17g %.17g %.17g\n", s.name, table.unpack(s.curve.c)))
  end
  file:close()
end

local function remember(servers, path)
  local file = path and io.open(path)
  if not file then return false end
  local kept = {}
  for line in file:lines() do
    local name, a, b, c = line:match("(%S+) (%S+) (%S+) (%S+)")
    kept[name] = { c = { tonumber(a), tonumber(b), tonumber(c) }, stretch = 1.0 }
  end
  file:close()
  for _, s in ipairs(servers) do
    if not kept[s.name] then return false end
  end
  for _, s in ipairs(servers) do s.curve = kept[s.name] end
  return true
end

local function clear(servers)
  for _, s in ipairs(servers) do
    s.sum_ms, s.count = 0.0, 0
  end
end

-- The share at which a server is explored next, of so many; nothing if it is full, or has had most.
local function further(points, idle_ms, servers)
  local most = points[1]
  for _, at in ipairs(points) do
    if at.share > most.share then most = at end
  end
  local limit = 1 - KEPT * (servers - 1) / servers
  if most.ms > FULL * idle_ms or most.share >= limit then return nil end
  return math.min(most.share * (1 + idle_ms / most.ms), limit)
end

-- Steps of exploring, in order: one for all, then each server's.
local function plan(servers)
  local steps = { { level = "even", server = servers[1] } }
  for _, level in ipairs({ "idle", "more", "more" }) do
    for _, s in ipairs(servers) do steps[#steps + 1] = { level = level, server = s } end
  end
  return steps
end

local memory = os.getenv("RIVAL_MEMORY")
local steps, current, began_s -- those of exploring to come, and the one that it is at

-- Go to the next step that there is; false after the last one.
local function go_on(servers)
  local even, share = 1 / #servers, nil
  repeat
    current = table.remove(steps, 1)
    if not current then return false end
    if current.level == "even" then
      share = even
    elseif current.level == "idle" then
      share = IDLE * even
    else
      share = further(current.server.points, current.server.idle_ms, #servers)
    end
  until share
  local shares = {}
  for i, s in ipairs(servers) do
    shares[i] = s == current.server and share or (1 - share) / (#servers - 1)
  end
  give(servers, shares)
  began_s = lab.now_s()
  clear(servers)
  return true
end

local function explore(servers)
  if not steps then
    for _, s in ipairs(servers) do s.points = {} end
    if remember(servers, memory) then return end
    steps = plan(servers)
    go_on(servers)
  end
  local in_s = lab.now_s() - began_s
  if in_s < SETTLE * STEP_S then clear(servers) end
  if in_s < STEP_S then return end
  for _, s in ipairs(servers) do
    if s.count < ENOUGH then return end
  end
  for _, s in ipairs(servers) do
    table.insert(s.points, { share = s.share, ms = s.sum_ms / s.count })
  end
  local asked = current.server
  if current.level == "idle" then asked.idle_ms = asked.points[#asked.points].ms end
  if go_on(servers) then return end
  for _, s in ipairs(servers) do s.curve = { c = fit(s.points), stretch = 1.0 } end
  keep(servers, memory)
end

-- Stretch a curve if a server's answers differ from it; whether they do.
local function moved(s, even)
  if s.count < LEAST_SAMPLES then return false end
  local ms = s.sum_ms / s.count
  -- Of n exponential times the mean is off by 1 / sqrt(n) of itself.
  local errors = math.log(ms / latency_ms(s.curve, s.share)) * math.sqrt(s.count)
  if math.abs(errors) < UNSURE then return false end
  local now = s.share / share_at(s.curve.c, ms, IDLE * even, FARTHEST * even)
  -- Half the way: answers tell of the shares that there were when they were asked for.
  s.curve.stretch = math.sqrt(s.curve.stretch * now)
  return true
end

local followed_s, cleared_s

local function follow(servers)
  local now_s, even = lab.now_s(), 1 / #servers
  local first = not followed_s
  if first then
    clear(servers)
    for _, s in ipairs(servers) do s.share = even end
  elseif now_s - followed_s < FOLLOW_S then
    return
  end
  followed_s = now_s
  local curves, any = {}, first
  for i, s in ipairs(servers) do
    any = moved(s, even) or any
    curves[i] = s.curve
  end
  if any then
    local shares = {}
    for i, units in ipairs(solve(curves)) do shares[i] = units / UNITS end
    give(servers, shares)
  end
  if any or now_s - cleared_s >= FORGET_S then
    clear(servers)
    cleared_s = now_s
  end
end

return {
  every_s = 0.1,
  tick = function(servers)
    if servers[1].curve then follow(servers) else explore(servers) end
  end,
  done = function(s, took_ms)
    s.sum_ms, s.count = (s.sum_ms or 0.0) + took_ms, (s.count or 0) + 1
  end,
  -- For tests.
  fit = fit, latency_ms = latency_ms, share_at = share_at, further = further, solve = solve,
}
