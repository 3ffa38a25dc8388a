-- A curve of mean latency against share for each server, and the shares of the least mean latency by
-- them.  (Gandhi and Narayana, KnapsackLB, 2024.)
--
-- explore   Every server is given more than its even share for a while, one after the other, and all
--           of them the even one.  A polynomial of degree 2 goes through what was seen of each.
-- follow    A server that is slower (or faster) than its curve says at its share looks as if it had
--           another share s' of what it was: its curve is stretched by share / s'.  That one is does
--           not say whether capacity or traffic has changed, and need not: if all are, all curves are
--           stretched alike, and the shares stay.
-- solve     Each server is given a whole number of units of share, at least one, 100 in all, so that
--           the sum of units x latency is least: a knapsack.  Its original hands an integer linear
--           program to a solver; dynamic programming finds the same optimum.
--
-- Kinder than the original: it sees the latency of each request, where the original probes every 5 s,
-- and follows every 2 s.
--
--   setenv RIVAL_MEMORY FILE     where curves are kept for the next one
--   setenv RIVAL_SETTING S       seconds of a step of exploring; 4 if not given

local lab = ...

local STEP_S = lab.setting or 4.0
local SETTLE = 0.25 -- of a step, before anything counts: queues change slowly
local MORE = 1.6 -- of the even share, where a server is explored: at half load 0.67 of capacity
local UNITS = 100
local FOLLOW_S = 2.0
local LEAST_SAMPLES = 10
local UNSURE = 0.2 -- of a mean of some 100 response times; nearer to its curve, nothing has changed
local FARTHEST = 4.0 -- even shares: beyond it a curve says nothing

-- Least squares of y = sum of c[p] x^p over the powers by the normal equations; c and the error.
local function regression(points, powers)
  local n, m = #powers, {}
  for i = 1, n do
    m[i] = {}
    for j = 1, n + 1 do m[i][j] = 0.0 end
  end
  for _, at in ipairs(points) do
    for i = 1, n do
      for j = 1, n do m[i][j] = m[i][j] + at.share ^ (powers[i] + powers[j]) end
      m[i][n + 1] = m[i][n + 1] + at.ms * at.share ^ powers[i]
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
    squares = squares + (c[1] + c[2] * at.share + c[3] * at.share ^ 2 - at.ms) ^ 2
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

-- The share of the unstretched curve at which it is `ms`.
local function share_at(c, ms, farthest)
  local low, high = 1e-3, farthest
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
    s.curve = kept[s.name]
  end
  return true
end

local memory = os.getenv("RIVAL_MEMORY")
local step, began_s -- which step of exploring: 0 is the even one, n that of server n

local function explored(servers)
  local even, shares = 1 / #servers, {}
  for i = 1, #servers do
    shares[i] = even
    if step > 0 then
      shares[i] = i == step and MORE * even or (1 - MORE * even) / (#servers - 1)
    end
  end
  return shares
end

local function clear(s)
  s.sum_ms, s.count = 0.0, 0
end

local function explore(servers)
  local now_s = lab.now_s()
  if not step then
    if remember(servers, memory) then
      step = #servers + 1
      return
    end
    step, began_s = 0, now_s
    give(servers, explored(servers))
  elseif now_s - began_s >= STEP_S then
    for _, s in ipairs(servers) do
      s.points = s.points or {}
      if (s.count or 0) >= LEAST_SAMPLES then
        table.insert(s.points, { share = s.share, ms = s.sum_ms / s.count })
      end
      clear(s)
    end
    step, began_s = step + 1, now_s
    if step <= #servers then
      give(servers, explored(servers))
      return
    end
    for _, s in ipairs(servers) do
      if #s.points < 3 then step = 0 end -- nobody asked: again
    end
    if step == 0 then
      give(servers, explored(servers))
      return
    end
    for _, s in ipairs(servers) do s.curve = { c = fit(s.points), stretch = 1.0 } end
    keep(servers, memory)
  elseif now_s - began_s < SETTLE * STEP_S then
    for _, s in ipairs(servers) do clear(s) end
  end
end

local followed_s

local function follow(servers)
  local now_s = lab.now_s()
  followed_s = followed_s or now_s - FOLLOW_S
  if now_s - followed_s < FOLLOW_S then return end
  followed_s = now_s
  local curves = {}
  for i, s in ipairs(servers) do
    s.share = s.share or 1 / #servers
    if (s.count or 0) >= LEAST_SAMPLES then
      local ms = s.sum_ms / s.count
      if math.abs(ms / latency_ms(s.curve, s.share) - 1.0) > UNSURE then
        local now = s.share / share_at(s.curve.c, ms, FARTHEST / #servers)
        -- Half the way: answers tell of the shares that there were when they were asked for.
        s.curve.stretch = math.sqrt(s.curve.stretch * now)
      end
    end
    clear(s)
    curves[i] = s.curve
  end
  local shares = {}
  for i, units in ipairs(solve(curves)) do shares[i] = units / UNITS end
  give(servers, shares)
end

return {
  every_s = 0.1,
  tick = function(servers)
    if not step or step <= #servers then explore(servers) else follow(servers) end
  end,
  done = function(s, took_ms)
    s.sum_ms, s.count = (s.sum_ms or 0.0) + took_ms, (s.count or 0) + 1
  end,
  -- For tests.
  fit = fit, latency_ms = latency_ms, share_at = share_at, solve = solve,
}
