"""KnapsackLB's rule, by itself and before simulated queues; in a real HAProxy: test_rivals.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dial_lab import haproxy
from dial_lab.policies import policy

Lua = Callable[..., list[str]]

RULE = f"{haproxy.RIVALS}/knapsack.lua"
ALONE = f'local rule = loadfile("{RULE}")({{}})\n'
BEFORE_QUEUES = f"""
local lab = loadfile("{Path(__file__).parent}/queues.lua")(300, RATE_RPS)
local rule, servers = loadfile("{RULE}")(lab), lab.servers(3)
local function explore()
  local began_s = lab.now_s()
  while not servers[1].curve do lab.run(rule, servers, 1.0, {{ 1, 1, 1 }}) end
  return lab.now_s() - began_s
end
local function static(weights, seconds, left)
  local all = lab.servers(3)
  for i, s in ipairs(all) do s.weight = weights[i] end
  return lab.run({{ tick = function() end, done = function() end }}, all, seconds, left)
end
"""
"""Three servers of 300 requests/s."""


def test_the_curve_is_a_polynomial_of_degree_two(lua: Lua) -> None:
    text = """
local points = {}
for _, x in ipairs({ 0.1, 0.3, 0.4, 0.5 }) do
  points[#points + 1] = { share = x, ms = 2 + 3 * x + 40 * x ^ 2 }
end
print(string.format("%.6f %.6f %.6f", table.unpack(rule.fit(points))))
local curve = { c = { 2, 3, 40 }, stretch = 0.5 }
print(rule.latency_ms(curve, 0.25), rule.share_at(curve.c, 13.5, 0.0, 1.0))
"""
    # Half as much capacity: at a share of 0.25 as slow as at 0.5, 2 + 1.5 + 10 = 13.5 ms.
    coefficients, latency = lua(ALONE + text)
    assert coefficients == "2.000000 3.000000 40.000000"
    assert [float(one) for one in latency.split()] == pytest.approx([13.5, 0.5])


def test_more_requests_make_no_server_faster_whatever_noise_says(lua: Lua) -> None:
    text = """
local c = rule.fit({ { share = 0.1, ms = 9 }, { share = 0.2, ms = 5 }, { share = 0.3, ms = 7 } })
print(string.format("%.6f %.6f %.6f", table.unpack(c)))
"""
    # Of falling times a constant is left, whose squared relative errors are the least:
    # (1/9 + 1/5 + 1/7) / (1/81 + 1/25 + 1/49).
    assert lua(ALONE + text) == ["6.239784 0.000000 0.000000"]


def test_a_server_with_capacity_to_spare_is_explored_in_big_steps(lua: Lua) -> None:
    text = """
local function next_of(ms, share)
  return rule.further({ { share = 0.1, ms = 3 }, { share = share, ms = ms } }, 3, 3)
end
print(next_of(6, 0.3), next_of(12, 0.4), next_of(3, 0.5), next_of(15.1, 0.4))
"""
    (found,) = lua(ALONE + text)
    *shares, full = found.split()
    # 0.3 (1 + 3/6); 0.4 (1 + 3/12); each of the others keeps half of 1/3; 15.1 is over 5 x 3.
    assert [float(share) for share in shares] == pytest.approx([0.45, 0.5, 2 / 3])
    assert full == "nil"


@pytest.mark.parametrize("stretches", [(1.0, 1.0, 1.0), (0.5, 1.0, 1.0), (0.1, 0.9, 1.3)])
def test_the_shares_are_those_of_the_least_mean_latency(
    lua: Lua, stretches: tuple[float, ...]
) -> None:
    def cost(units: tuple[int, ...]) -> float:
        shares = [n / 100 / stretch for n, stretch in zip(units, stretches, strict=True)]
        return sum(n * (2 + 3 * x + 40 * x * x) for n, x in zip(units, shares, strict=True))

    curves = ", ".join(f"{{ c = {{ 2, 3, 40 }}, stretch = {one} }}" for one in stretches)
    (found,) = lua(f"{ALONE}print(table.unpack(rule.solve({{ {curves} }})))")
    units = tuple(int(one) for one in found.split())
    assert sum(units) == 100
    every = [(a, b, 100 - a - b) for a in range(1, 99) for b in range(1, 100 - a)]
    assert cost(units) == pytest.approx(min(map(cost, every)))


@pytest.mark.parametrize("rate_rps", [190, 375, 560])
def test_it_has_explored_when_its_time_to_learn_is_over(lua: Lua, rate_rps: int) -> None:
    text = """
print(explore())
for _, s in ipairs(servers) do
  print(#s.points, table.concat({ rule.latency_ms(s.curve, 0.1), rule.latency_ms(s.curve, 0.4),
                                  rule.latency_ms(s.curve, 0.6) }, " "))
end
"""
    took_s, *curves = lua(BEFORE_QUEUES.replace("RATE_RPS", str(rate_rps)) + text)
    assert float(took_s) < policy("knapsack").explores_s
    for curve in curves:
        points, *latency_ms = map(float, curve.split())
        # The even share, and while each of the three was idle; beyond that if none is full yet.
        assert points >= 1 + 3
        assert latency_ms == sorted(latency_ms)


def test_a_step_of_exploring_lasts_until_each_server_has_answered_enough(lua: Lua) -> None:
    # 60 requests/s: idle, a twelfth of them is 5 a second, and 100 take 20 s; three such steps.
    (took_s,) = lua(BEFORE_QUEUES.replace("RATE_RPS", "60") + "print(explore())")
    assert float(took_s) > 3 * 0.8 * 20


def test_it_is_near_the_best_fixed_weights_beside_a_neighbour_and_harmless_without(
    lua: Lua,
) -> None:
    text = """
explore()
local function compare(left, fixed)
  local ours, theirs = {}, {}
  for block = 1, 5 do
    lab.run(rule, servers, 15, { 1, 1, 1 })
    ours[block] = lab.mean(lab.run(rule, servers, 15, left))
    theirs[block] = lab.mean(static(fixed, 15, left))
  end
  print(lab.mean(ours) / lab.mean(theirs))
end
compare({ 1, 1, 1 }, { 100, 100, 100 })
compare({ 0.5, 1, 1 }, { 100, 100, 100 })
-- What an M/M/1 each would give: u = 0.17 of the victim's 0.5, 0.54 of 1 of the others.
compare({ 0.5, 1, 1 }, { 14, 43, 43 })
"""
    ratios = lua(BEFORE_QUEUES.replace("RATE_RPS", "375") + text)
    calm, even, best = map(float, ratios)
    # The time of reacting is part of it.
    assert calm < 1.1
    assert even < 0.7
    assert best < 1.15
