"""A VM whose own services, or packets, take its CPU: the cause is named, no neighbour is booked."""

from __future__ import annotations

import pytest

from dial.types import Action, Cause, NoData

NAMES = ("s1", "s2", "s3")
SIGNALS = {Cause.OWN_SERVICES: "own_services", Cause.SOFTIRQ: "softirq"}


@pytest.fixture
def inside(make_service):
    """Three VMs of which a little goes to other services and to packets, learnt for a while."""
    found = make_service(
        own_services=dict.fromkeys(NAMES, 0.05), softirq=dict.fromkeys(NAMES, 0.02)
    )
    found.run(20)
    return found


def verdict(plan, name="s1"):
    return next(b.verdict for b in plan.backends if b.name == name)


@pytest.mark.parametrize("cause", SIGNALS)
def test_load_leaves_it_the_cause_is_named_and_rho_bg_is_none(inside, cause) -> None:
    getattr(inside, SIGNALS[cause])["s1"] = 0.5
    plan = inside.run(10)
    assert verdict(plan).cause is cause
    assert inside.weights["s1"] < 70
    assert verdict(plan).rho_bg == pytest.approx(0.0, abs=0.1)
    assert any(line.startswith("capacity lost 0.") for line in verdict(plan).evidence)
    assert cause in plan.reason


@pytest.mark.parametrize("cause", SIGNALS)
def test_it_is_named_in_all_ticks_from_the_first_that_names_anything(inside, cause) -> None:
    getattr(inside, SIGNALS[cause])["s1"] = 0.5
    inside.run(20)
    verdicts = [verdict(plan) for plan in inside.plans[20:]]
    assert {each.cause for each in verdicts[2:]} == {cause}
    known = [each.rho_bg for each in verdicts if not isinstance(each.rho_bg, NoData)]
    assert max(known) < 0.1


@pytest.mark.parametrize("cause", SIGNALS)
def test_no_rho_bg_is_told_of_the_interval_in_which_it_begins(inside, cause) -> None:
    # Requests and sample do not begin together: half of it in one may be all of it in the other.
    # It is named as soon as an agent tells of it, in the middle of a disturbance or not.
    getattr(inside, SIGNALS[cause])["s1"] = 0.5
    inside.agents_dead = {"s1"}
    assert verdict(inside.run(6)).cause is Cause.UNKNOWN
    inside.agents_dead = set()
    first, second = verdict(inside.run(1)), verdict(inside.run(1))
    assert (first.cause, second.cause) == (cause, cause)
    assert isinstance(first.rho_bg, NoData)
    assert second.rho_bg == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("cause", SIGNALS)
def test_load_returns_when_it_ends(inside, cause) -> None:
    signal = getattr(inside, SIGNALS[cause])
    usual, signal["s1"] = signal["s1"], 0.5
    inside.run(10)
    signal["s1"] = usual
    plan = inside.run(30)
    assert verdict(plan).cause is Cause.NONE
    assert inside.weights == inside.configured


@pytest.mark.parametrize("cause", SIGNALS)
def test_what_the_load_itself_brings_is_none_of_it(inside, cause) -> None:
    # With half as many requests again, half as many packets again; nothing is slower than expected.
    inside.arrival_per_s *= 1.5
    if cause is Cause.SOFTIRQ:
        inside.softirq = dict.fromkeys(NAMES, 0.03)
    inside.run(20)
    assert cause not in {verdict(plan).cause for plan in inside.plans}


def test_a_neighbour_beside_a_vm_that_tells_of_itself_is_classified_as_before(inside) -> None:
    inside.rho_bg["s1"] = 0.6
    plan = inside.run(10)
    assert verdict(plan).cause is Cause.CPU
    assert verdict(plan).rho_bg == pytest.approx(0.6, abs=0.1)


def test_the_same_slowness_without_the_signal_is_never_ones_own_doing(make_service) -> None:
    service = make_service()
    service.run(20)
    service.cache_rho_bg["s1"] = 0.6
    service.run(20)
    assert not any(verdict(plan).cause.is_own_doing for plan in service.plans)


@pytest.mark.parametrize("cause", SIGNALS)
def test_what_all_vms_do_to_themselves_moves_no_load_and_is_named(inside, cause) -> None:
    setattr(inside, SIGNALS[cause], dict.fromkeys(NAMES, 0.4))
    plan = inside.run(10)
    assert plan.action is Action.HOLD
    assert inside.weights == inside.configured
    assert verdict(plan).cause is cause


@pytest.mark.parametrize("cause", SIGNALS)
def test_a_vm_without_siblings_is_told_why_too(make_service, cause) -> None:
    alone = make_service(
        names=("s1",),
        arrival_per_s=60.0,
        own_services={"s1": 0.05},
        softirq={"s1": 0.02},
    )
    alone.run(20)
    getattr(alone, SIGNALS[cause])["s1"] = 0.5
    plan = alone.run(10)
    assert verdict(plan).cause is cause
    assert alone.weights == alone.configured


def test_targets_that_nothing_inside_the_vm_meets_move_load_although_t_x_is_normal(inside) -> None:
    inside.missed_s["s1"] = 60.0
    plan = inside.run(1)
    assert verdict(plan).cause is Cause.OWN_SERVICES
    assert plan.action is Action.SHIFT
    assert any("miss their targets" in line for line in verdict(plan).evidence)
    inside.run(3)
    first = inside.weights["s1"]
    assert first < 100
    inside.missed_s["s1"] = 180.0
    inside.run(4)
    assert inside.weights["s1"] < first
    known = [verdict(plan).rho_bg for plan in inside.plans[20:]]
    assert all(isinstance(each, NoData) or each < 0.1 for each in known)


def test_load_that_was_asked_to_go_stays_away_until_it_is_no_longer_asked(inside) -> None:
    inside.missed_s["s1"] = 60.0
    inside.run(40)
    assert inside.weights["s1"] < inside.configured["s1"]
    inside.missed_s["s1"] = 0.0
    plan = inside.run(30)
    assert inside.weights == inside.configured
    assert verdict(plan).cause is Cause.NONE


def test_where_all_vms_ask_there_is_nobody_to_take_load(inside) -> None:
    inside.missed_s = dict.fromkeys(NAMES, 120.0)
    plan = inside.run(5)
    assert plan.action is Action.PANIC
    assert inside.weights == inside.configured
