"""A backend that has always been slower than its siblings is the last of idle ones to be taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dial.controller.baseline import Baselines
from dial.types import Action, Orders, Override, WeightKind, WeightMeaning

DELAY = WeightMeaning(WeightKind.SERVICE_RATE, minimum=1, maximum=256, zero_drains=True)
LEASTCONN = WeightMeaning(WeightKind.CONCURRENCY, minimum=1, maximum=256, zero_drains=True)
ROUND_ROBIN = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)

LAST = {"s1": 95, "s2": 100, "s3": 100}
EVEN = dict.fromkeys(LAST, 100)


@pytest.fixture
def make_slower(make_service):
    """A service of which ``s1`` is twice as slow as its siblings (30 of 90 and 150/s)."""

    def make(rho_bg: float = 0.4, **arguments: object):
        arguments.setdefault("meaning", DELAY)
        arguments.setdefault("arrival_per_s", 90.0)
        return make_service(rho_bg={"s1": rho_bg}, **arguments)

    return make


@pytest.fixture
def slower(make_slower):
    found = make_slower()
    found.run(40)
    return found


def learnt(service) -> list[int]:
    policy, backends = service.policy, service.state.backends
    return Baselines.of(policy, backends, interval_s=2.0).learnt.tolist()


def test_it_is_taken_last_once_that_is_surely_so_and_nobody_is_accused(slower):
    assert slower.weights == LAST
    assert {b.verdict.cause for plan in slower.plans for b in plan.backends} == {"none"}
    begun = [plan for plan in slower.plans if plan.changes]
    assert [(plan.action, plan.changes) for plan in begun] == [(Action.PREFER, (("s1", 95),))]
    assert begun[0].tick >= 20
    assert begun[0].reason == (
        "s1: slower than its siblings, nobody to blame, so the last of idle backends"
    )
    assert slower.plans[-1].action is Action.HOLD
    assert slower.plans[-1].reason.startswith("no neighbour found; s1: slower")


@pytest.mark.parametrize("meaning", [LEASTCONN, ROUND_ROBIN])
def test_weights_that_break_no_ties_stay_as_configured(make_slower, meaning):
    service = make_slower(meaning=meaning)
    service.run(40)
    assert service.weights == EVEN


@pytest.mark.parametrize(
    "given",
    [
        {"guards": {"slower_ratio": None}},
        {"strategies": {"split": "proportional"}},
        {"rho_bg": 0.1},
    ],
    ids=["switched off", "another split", "1.2 times as slow"],
)
def test_nobody_is_taken_last(make_slower, given):
    service = make_slower(**given)
    service.run(40)
    assert service.weights == EVEN
    assert service.state.shift is None


def test_an_admin_who_gave_other_weights_has_said_who_is_to_have_more(make_slower):
    configured = {"s1": 100, "s2": 120, "s3": 100}
    service = make_slower(configured=configured)
    service.run(40)
    assert service.weights == configured


def test_one_that_the_admin_gave_nothing_is_nobodys_sibling(make_slower):
    names = (*EVEN, "s4")
    service = make_slower(names=names, configured=EVEN | {"s4": 0})
    service.run(60)
    assert service.weights == LAST | {"s4": 0}


def test_where_most_look_contended_the_configured_weights_stand(make_slower):
    service = make_slower(guards={"panic_fraction": 0.3})
    service.run(40)
    assert service.weights == LAST
    service.rho_bg["s2"] = 0.75
    service.run(10)
    assert service.plans[-1].action is Action.PANIC
    assert service.weights == EVEN


def test_a_weight_that_was_not_taken_is_wanted_again(slower):
    slower.rho_bg.clear()
    while not slower.plans[-1].changes or slower.plans[-1].action is not Action.PREFER:
        slower.run(1, apply=False)
    for _ in range(3):
        plan = slower.run(1, apply=False)
        assert (plan.action, plan.changes) == (Action.PREFER, (("s1", 100),))


def test_small_configured_weights_are_told_apart_as_well(make_slower):
    service = make_slower(configured=dict.fromkeys(EVEN, 1))
    service.run(40)
    assert service.weights == LAST


def test_what_is_quiet_is_still_learnt_from(slower):
    before = learnt(slower)
    slower.run(5)
    assert [now - then for now, then in zip(learnt(slower), before, strict=True)] == [5, 5, 5]


def test_nothing_is_learnt_while_an_operator_has_given_a_weight(slower):
    until_s = slower.observations[-1].now_s + 1000.0
    slower.orders = Orders(overrides=(Override("s2", 50, until_s),))
    slower.run(1)
    before = learnt(slower)
    slower.run(5)
    assert slower.weights == LAST | {"s2": 50}
    assert learnt(slower) == before


def test_its_part_of_the_requests_speaks_for_nobody(slower):
    # It has next to nothing now: of the balancer's choice alone that would be a strong neighbour.
    slower.given["s1"] = 0.1
    slower.run(20)
    assert {b.verdict.cause for plan in slower.plans for b in plan.backends} == {"none"}
    assert slower.weights == LAST


def test_a_neighbour_elsewhere_moves_load_and_it_stays_last(slower):
    slower.rho_bg["s2"] = 0.6
    slower.run(8)
    assert slower.plans[-1].backends[1].verdict.cause == "cpu"
    assert slower.weights["s2"] < 60
    assert (slower.weights["s1"], slower.weights["s3"]) == (95, 100)
    slower.rho_bg["s2"] = 0.0
    slower.run(40)
    assert slower.weights == LAST
    released = [plan.action for plan in slower.plans if plan.action is Action.RELEASE]
    assert released
    before = learnt(slower)
    slower.run(5)
    assert learnt(slower) != before


def test_its_own_neighbour_moves_more_load_away_and_it_is_last_again_afterwards(slower):
    slower.rho_bg["s1"] = 0.75
    slower.run(10)
    assert slower.weights["s1"] < 60
    slower.rho_bg["s1"] = 0.4
    slower.run(60)
    assert slower.weights == LAST


def test_for_twenty_ticks_of_six_hundred_it_is_taken_as_it_comes(slower):
    slower.run(640 - slower.tick)
    even = [plan.tick for plan in slower.plans if plan.weights["s1"] == 100]
    assert [tick for tick in even if tick > 100] == list(range(600, 620))
    assert slower.weights == LAST
    ended = next(plan for plan in slower.plans if plan.tick == 600)
    assert (ended.action, ended.reason) == (Action.PREFER, "idle backends are taken as they come")


def test_where_the_others_are_needed_it_is_taken_as_it_comes(make_slower):
    # 195 of the 300 requests/s that the others serve: too many to begin, few enough to go on.
    # Of so many it took 3.4 times as long as they did.
    service = make_slower(arrival_per_s=195.0)
    service.run(40)
    assert service.weights == EVEN
    service.arrival_per_s = 90.0
    service.run(120)
    assert service.weights == LAST | {"s1": 48}
    service.arrival_per_s = 195.0
    service.run(20)
    assert service.weights == LAST | {"s1": 48}
    service.arrival_per_s = 220.0
    service.run(20)
    assert service.weights == EVEN


def test_of_two_slower_ones_only_the_slowest_where_the_other_is_needed(make_slower):
    # s2 and s3 serve 240 requests/s, and s3 alone 150: at most 0.6 of that may arrive.
    service = make_slower(arrival_per_s=100.0)
    service.rho_bg = {"s1": 0.55, "s2": 0.4}
    service.run(60)
    assert service.weights == LAST | {"s1": 48}
    service.arrival_per_s = 60.0
    service.run(120)
    assert service.weights == LAST | {"s1": 48, "s2": 95}


@pytest.mark.parametrize(
    ("rho_bg", "ahead", "weight"), [(0.4, 1, 95), (0.54, 2, 48), (0.66, 3, 32), (0.75, 3, 32)]
)
def test_the_slower_it_is_the_more_requests_the_others_have_before_it_is_taken(
    make_slower, rho_bg, ahead, weight
):
    # 2, 3.1, 5.7 and 16 times as slow: 120 / (150 (1 - rho_bg) - 30).
    service = make_slower(rho_bg)
    service.run(60)
    assert service.state.shift.ahead == {"s1": ahead}
    assert service.weights == LAST | {"s1": weight}
    assert {b.verdict.cause for plan in service.plans for b in plan.backends} == {"none"}


def test_a_plan_says_how_many_requests_the_others_have_before_it_is_taken(make_slower):
    service = make_slower(0.54)
    service.run(60)
    assert service.plans[-1].reason == (
        "no neighbour found; s1 (after 2 at each other): slower than its siblings, "
        "nobody to blame, so the last of idle backends"
    )


def test_nobody_is_taken_last_where_no_peak_is_known(make_slower):
    service = make_slower()
    service.agents_dead = set(service.names)
    service.run(40)
    assert service.weights == EVEN


def test_one_that_has_become_as_fast_is_taken_as_it_comes(slower):
    slower.rho_bg.clear()
    slower.run(400)
    assert slower.weights == EVEN
    assert slower.state.shift is None


def test_a_ratio_that_wavers_does_not_make_the_weight_waver(make_slower):
    # 1.37 times as slow: it would not be taken last, and it stays so.
    service = make_slower(rho_bg=0.17)
    service.run(60)
    assert service.weights == EVEN
    service = make_slower(rho_bg=0.4)
    service.run(40)
    service.policy = replace(
        service.policy,
        guards=service.policy.guards.model_copy(update={"slower_ratio": 2.5}),
    )
    service.run(20)
    assert service.weights == LAST


def test_a_balancer_that_lost_the_weight_has_it_written_again(slower):
    slower.reload()
    slower.run(1)
    assert slower.plans[-1].action is Action.RESTORE
    assert slower.weights == LAST


def test_whoever_sets_a_weight_by_hand_is_right(slower):
    slower.weights["s3"] = 70
    slower.run(1)
    assert slower.plans[-1].action is Action.YIELD
    assert slower.weights == {"s1": 95, "s2": 100, "s3": 70}
