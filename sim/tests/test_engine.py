"""The compiled engine against what queueing theory says, and against itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dial_sim.engine import (
    LEASTCONN,
    RANDOM_2,
    ROUND_ROBIN,
    advance,
    begin_interval,
    in_flight,
    new_world,
    percentiles_ms,
    reweigh,
)

WORK_S = 0.1


def served(policy, *, servers=50, rate=5.0, length_s=2000.0, seed=1, weights=None, **given):
    world = new_world(servers, balancers=given.pop("balancers", 1), seed=seed, kept=1)
    for name, values in given.items():
        getattr(world, name)[:] = values
    if weights is not None:
        reweigh(world, policy, np.array(weights, float))
    advance(world, policy, length_s, servers * rate, WORK_S, 0.0, 0.0)
    return world


def p90_s(world) -> float:
    return percentiles_ms(world.histogram, 90.0)[0] / 1e3


def test_one_server_is_an_m_m_1():
    # 5 requests/s of 0.1 s: P90 = ln(10) / (10 - 5) = 0.4605 s.
    world = served(ROUND_ROBIN, servers=1, length_s=100_000.0)
    assert p90_s(world) == pytest.approx(math.log(10.0) / 5.0, rel=0.03)


def test_a_server_of_which_a_neighbour_leaves_three_fifths_is_a_slower_m_m_1():
    # 6 are left of 10 requests/s, 3 arrive: ln(10) / (6 - 3) = 0.7675 s.
    world = served(ROUND_ROBIN, servers=1, rate=3.0, length_s=100_000.0, from_s=0.0, left=0.6)
    assert p90_s(world) == pytest.approx(math.log(10.0) / 3.0, rel=0.03)


def test_a_quota_serves_as_much_as_it_allows():
    # 0.3 of each 10 ms, 2 ms a request: 150 requests/s; 200 arrive.
    world = new_world(1, balancers=1, seed=1, kept=1)
    advance(world, ROUND_ROBIN, 100.0, 200.0, 0.002, 0.3, 0.01)
    assert world.histogram.sum() == pytest.approx(15_000, rel=0.02)


def test_a_request_within_its_quota_is_served_at_full_speed():
    # Three requests a second of 2 ms hardly ever meet: P50 is that of the work, 2 ms * ln(2),
    # but for those that need more than the 3 ms of a period.
    world = new_world(1, balancers=1, seed=1, kept=1)
    advance(world, ROUND_ROBIN, 10_000.0, 3.0, 0.002, 0.3, 0.01)
    assert percentiles_ms(world.histogram, 50.0)[0] == pytest.approx(2.0 * math.log(2.0), rel=0.1)


def test_round_robin_gives_shares_by_weight():
    world = served(ROUND_ROBIN, servers=3, rate=2.0, weights=[100, 50, 50])
    shares = world.sent / world.sent.sum()
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.01)


@pytest.mark.parametrize("policy", [ROUND_ROBIN, LEASTCONN])
def test_a_server_of_weight_0_gets_nothing_until_it_has_one_again(policy):
    world = served(policy, servers=3, rate=2.0, weights=[0, 100, 100])
    assert world.sent[0] == 0
    assert world.flying[0, 0] == 0
    reweigh(world, policy, np.array([100.0, 100.0, 100.0]))
    advance(world, policy, 4000.0, 6.0, WORK_S, 0.0, 0.0)
    assert world.sent[0] == pytest.approx(4000, rel=0.05)


@pytest.mark.parametrize("policy", [ROUND_ROBIN, LEASTCONN])
def test_where_all_weights_are_0_requests_are_served_all_the_same(policy):
    world = served(policy, servers=3, rate=2.0, weights=[0, 0, 0])
    assert world.sent.sum() == pytest.approx(12_000, rel=0.05)


def test_the_fewer_know_the_longer_the_tail():
    # As theory has it at half load: leastconn, two choices, turns.
    times = [p90_s(served(policy)) for policy in (LEASTCONN, RANDOM_2, ROUND_ROBIN)]
    assert times == sorted(times)


def test_leastconn_behind_many_balancers_knows_less():
    alone = p90_s(served(LEASTCONN, servers=20))
    among_ten = p90_s(served(LEASTCONN, servers=20, balancers=10))
    assert alone < among_ten


def test_two_runs_with_one_seed_are_the_same():
    one, two, other = served(LEASTCONN), served(LEASTCONN), served(LEASTCONN, seed=2)
    assert np.array_equal(one.histogram, two.histogram)
    assert not np.array_equal(one.histogram, other.histogram)


def test_no_request_is_lost_between_intervals():
    world = new_world(10, balancers=2, seed=1, kept=1000)
    sent = answered = 0
    for tick in range(1, 30):
        begin_interval(world)
        advance(world, LEASTCONN, 10.0 * tick, 60.0, WORK_S, 0.0, 0.0)
        sent += world.sent.sum()
        answered += world.kept.sum()
    assert sent == answered + in_flight(world)
    assert world.flying.sum() == in_flight(world)
    assert world.histogram.sum() == answered
