"""A small service from start to end: DIAL's step finds the neighbours and moves load."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from dial_sim.engine import LEASTCONN, advance, new_world
from dial_sim.neighbours import Neighbourhood
from dial_sim.run import POLICIES, Scenario, simulate

SMALL = Scenario(
    10,
    length_s=1800.0,
    neighbourhood=Neighbourhood(contended=0.1, stay_s=300.0, least=0.6, most=0.8),
    seed=3,
)


def test_visits_are_the_same_for_every_policy_and_never_two_at_once():
    visits = Neighbourhood(contended=0.3).draw(20, 3600.0, seed=1)
    assert visits == Neighbourhood(contended=0.3).draw(20, 3600.0, seed=1)
    assert [v.from_s for v in visits] == sorted(v.from_s for v in visits)
    for server in range(20):
        mine = [v for v in visits if v.server == server]
        assert all(a.until_s <= b.from_s for a, b in pairwise(mine))


def test_as_many_are_contended_as_were_asked_for():
    length_s, near = 200_000.0, Neighbourhood(contended=0.2, quiet_s=0.0)
    visits = near.draw(50, length_s, seed=1)
    there_s = sum(min(v.until_s, length_s) - v.from_s for v in visits)
    assert there_s / (50 * length_s) == pytest.approx(0.2, rel=0.05)


def test_load_leaves_who_has_a_neighbour_and_the_tail_is_shorter():
    even, steered = simulate(SMALL, "roundrobin"), simulate(SMALL, "dial")
    assert even.refused == steered.refused == 0
    assert steered.p90_ms < even.p90_ms
    assert steered.reacted is not None
    assert steered.reacted > 0.5
    assert steered.weights_written > 0 == even.weights_written


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_answers_what_arrives(policy):
    outcome = simulate(replace(SMALL, length_s=300.0, balancers=2), policy)
    # 10 servers of 5 requests/s, 300 s, less those in flight at the end.
    assert outcome.requests == pytest.approx(15_000, rel=0.05)


DEAR = Scenario(
    3,
    rate_per_server=50.0,
    work_s=1.0 / 150.0,
    dear_part=0.02,
    dear_times=20.0,
    length_s=1800.0,
    interval_s=1.0,
    neighbourhood=Neighbourhood(contended=1e-9),
)
"""Nobody comes; one request of fifty costs twenty times the mean."""


def test_requests_of_which_some_are_dear_are_no_neighbour_to_speak_of():
    """Taken for one 65 times an hour, they made P90 twice as long."""
    even, steered = simulate(DEAR, "roundrobin"), simulate(DEAR, "dial")
    assert steered.weights_written == 0
    assert steered.p90_ms == even.p90_ms


def test_requests_cost_what_they_are_told_to_on_average():
    world = new_world(1, balancers=1, seed=1, kept=1, dear_part=0.02, dear_times=20.0)
    advance(world, LEASTCONN, 100_000.0, 3.0, 0.1, 0.0, 0.0)
    assert world.ran_s.sum() / world.sent.sum() == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize(("part", "times"), [(1.0, 1.0), (-0.1, 2.0), (0.2, 6.0)])
def test_a_part_that_costs_more_than_all_is_refused(part, times):
    with pytest.raises(ValueError, match="dear_part"):
        new_world(1, balancers=1, seed=1, kept=1, dear_part=part, dear_times=times)


def test_least_connections_leave_them_few_moves_for_nothing():
    steered = simulate(DEAR, "dial+leastconn")
    # Three weights to and fro, with a probe or two: it was more than 200.
    assert steered.weights_written <= 40
