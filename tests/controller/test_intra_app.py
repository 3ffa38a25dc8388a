"""A backend that blocks itself: load leaves it, the cause is named, no neighbour is booked."""

from __future__ import annotations

import pytest

from dial.types import Action, Cause, NoData

NAMES = ("s1", "s2", "s3")


@pytest.fixture
def traced(make_service):
    """Three backends whose applications tell of a little waiting, learnt for twenty ticks."""
    found = make_service(deferred=dict.fromkeys(NAMES, 0.05))
    found.run(20)
    return found


def verdict(plan, name="s1"):
    return next(b.verdict for b in plan.backends if b.name == name)


def test_load_leaves_it_the_cause_is_named_and_rho_bg_is_none(traced) -> None:
    traced.deferred["s1"] = 0.6
    plan = traced.run(10)
    assert verdict(plan).cause is Cause.INTRA_APP
    assert traced.weights["s1"] < 60
    # Waiting takes 1 - 0.4/0.95 = 0.58 of what there usually is, and nothing more is lost.
    assert verdict(plan).rho_bg == pytest.approx(0.0, abs=0.1)
    assert any("waits for itself" in line for line in verdict(plan).evidence)
    assert any(line.startswith("capacity lost 0.") for line in verdict(plan).evidence)
    assert "intra-app" in plan.reason


def test_it_is_named_in_all_ticks_from_the_first_one_that_names_anything(traced) -> None:
    traced.deferred["s1"] = 0.6
    traced.run(20)
    causes = [verdict(plan).cause for plan in traced.plans[20:]]
    assert set(causes[2:]) == {Cause.INTRA_APP}
    assert not any(cause.is_contention for cause in causes)


def test_load_returns_when_the_waiting_ends(traced) -> None:
    traced.deferred["s1"] = 0.6
    traced.run(10)
    traced.deferred["s1"] = 0.05
    plan = traced.run(30)
    assert verdict(plan).cause is Cause.NONE
    assert traced.weights == traced.configured


def test_load_stays_away_while_the_waiting_shows_although_t_x_is_normal(traced) -> None:
    traced.arrival_per_s = 40.0
    traced.run(10)
    traced.deferred["s1"] = 0.6
    traced.run(30)
    assert traced.weights["s1"] < traced.configured["s1"]
    assert verdict(traced.plans[-1]).cause is Cause.INTRA_APP


def test_a_neighbour_beside_a_traced_application_is_classified_as_before(traced) -> None:
    traced.rho_bg["s1"] = 0.6
    plan = traced.run(10)
    assert verdict(plan).cause is Cause.CPU
    assert verdict(plan).rho_bg == pytest.approx(0.6, abs=0.1)


def test_a_neighbour_that_makes_lock_holders_slower_is_still_the_neighbour(traced) -> None:
    # Waiting alone would cost 0.4 of the capacity; a third of what is left of it is gone too.
    traced.rho_bg["s1"], traced.deferred["s1"] = 0.35, 0.45
    plan = traced.run(10)
    assert verdict(plan).cause is Cause.CPU


def test_the_same_slowness_without_the_signal_is_never_intra_app(make_service) -> None:
    service = make_service()
    service.run(20)
    service.cache_rho_bg["s1"] = 0.6
    service.run(20)
    causes = {verdict(plan).cause for plan in service.plans}
    assert Cause.INTRA_APP not in causes


def test_a_signal_that_begins_while_it_blocks_itself_has_no_quiet_past_to_go_by(
    make_service,
) -> None:
    service = make_service()
    service.run(20)
    service.deferred["s1"] = 0.6
    service.run(10)
    assert Cause.INTRA_APP not in {verdict(plan).cause for plan in service.plans}


def test_an_agent_that_dies_leaves_the_cause_named_and_rho_bg_unknown(traced) -> None:
    traced.deferred["s1"] = 0.6
    traced.run(10)
    traced.agents_dead = {"s1"}
    plan = traced.run(2)
    assert verdict(plan).cause is Cause.INTRA_APP
    assert isinstance(verdict(plan).rho_bg, NoData)


def test_what_all_backends_wait_for_moves_no_load_and_is_named(traced) -> None:
    traced.deferred |= dict.fromkeys(NAMES, 0.5)
    plan = traced.run(10)
    assert plan.action is Action.HOLD
    assert traced.weights == traced.configured
    assert verdict(plan).cause is Cause.INTRA_APP


def test_an_interval_without_t_x_is_named_by_what_is_lost_already(traced) -> None:
    traced.rho_bg["s1"] = 0.99
    traced.agents_dead = {"s1"}
    plan = traced.run(8)
    assert verdict(plan).cause is Cause.UNKNOWN
    traced.given["s1"] = 0.0
    traced.agents_dead, traced.deferred["s1"] = set(), 0.99
    plan = traced.run(2)
    assert isinstance(traced.observations[-1].backends[0].window.t_x_ms, NoData)
    assert verdict(plan).cause is Cause.INTRA_APP
