"""What the balancer's own choice says of a backend, and what is made of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dial.controller.passed_over import PassedOver, passed_over
from dial.controller.state import Release
from dial.controller.step import step
from dial.types import Action, Cause, NoData, WeightKind, WeightMeaning

LEASTCONN = WeightMeaning(WeightKind.CONCURRENCY, minimum=1, maximum=256, zero_drains=True)


ROUND_ROBIN = replace(LEASTCONN, kind=WeightKind.REQUESTS)


def run(service, ticks):
    """Let ticks pass whose T90 is off by up to a half; returns the actions."""
    actions = []
    for _ in range(ticks):
        wobble = (1.5, 0.7, 1.0)[service.tick % 3]
        observation = service.observe(dict.fromkeys(service.names, wobble))
        service.state, plan = step(service.policy, service.state, observation)
        service.weights |= dict(plan.changes)
        actions.append(plan.action)
    return actions


@pytest.fixture
def after_quiet(make_service, wait_says_nothing):
    """Makes a service whose quiet past is known, of two witnesses."""

    def make(meaning, **options):
        service = make_service(meaning=meaning, arrival_per_s=120.0, **options)
        assert set(run(service, 21)) == {Action.HOLD}
        return service

    return make


def seen(make_service, given=None, **changes):
    service = make_service(meaning=LEASTCONN, arrival_per_s=200.0, **changes)
    service.given = given or {}
    return service.observe()


def given(observation, *, even=True):
    rate_per_s = np.array([b.window.rate_per_s for b in observation.backends])
    usable = np.array([b.server.usable for b in observation.backends])
    return passed_over(observation, rate_per_s, usable, even=even)


def test_half_the_rate_of_its_siblings_is_half_of_the_capacity_lost(make_service):
    # 40 requests/s beside 80 and 80, for two seconds each.
    found = given(seen(make_service, {"s1": 0.5}))
    assert found.residual[0] == pytest.approx(math.log(2.0))
    assert found.sd[0] == pytest.approx(math.sqrt(1 / 80 + 1 / 320))
    assert found.requests[0] == 80
    mean, sd = found.rho_bg(np.zeros(3), np.full(3, 0.1))
    assert mean[0] == pytest.approx(0.5)
    # As sure as ln 2 is with 0.1.
    assert mean[0] / sd[0] == pytest.approx(math.log(2.0) / 0.1)


def test_what_nobody_takes_is_as_unsure_as_the_residual(make_service):
    found = given(seen(make_service))
    mean, sd = found.rho_bg(np.zeros(3), np.full(3, 0.1))
    assert mean == pytest.approx(0.0)
    assert sd == pytest.approx(0.1)


def test_a_machine_that_always_gets_less_is_not_passed_over(make_service):
    found = given(seen(make_service, {"s1": 0.5}))
    mean, _ = found.rho_bg(np.full(3, math.log(2.0)), np.full(3, 0.1))
    assert mean[0] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("meaning", "even", "why"),
    [
        (replace(LEASTCONN, kind=WeightKind.REQUESTS), True, "by weight alone"),
        (LEASTCONN, False, "not the configured ones"),
    ],
)
def test_rates_that_the_weights_make_say_nothing(make_service, meaning, even, why):
    observation = replace(seen(make_service), meaning=meaning)
    found = given(observation, even=even)
    assert isinstance(found, NoData)
    assert why in found.reason


@pytest.mark.parametrize(
    "meaning",
    [
        replace(LEASTCONN, kind=WeightKind.DRAW),
        replace(LEASTCONN, kind=WeightKind.REQUESTS, in_flight_bias=1.0),
    ],
)
def test_every_policy_that_counts_requests_in_flight_is_a_witness(make_service, meaning):
    observation = replace(seen(make_service), meaning=meaning)
    assert isinstance(given(observation), PassedOver)


def test_who_is_not_used_is_neither_compared_nor_compared_with(make_service):
    service = make_service(meaning=LEASTCONN)
    service.unusable = {"s3"}
    assert given(service.observe()).residual == pytest.approx([0.0, 0.0, math.nan], nan_ok=True)
    service.unusable = {"s2", "s3"}
    assert np.isnan(given(service.observe()).residual).all()


def test_a_victim_that_the_balancer_passes_over_is_found_in_two_intervals(after_quiet):
    service = after_quiet(LEASTCONN)
    service.rho_bg["s1"], service.given["s1"] = 0.45, 0.5
    assert run(service, 2) == [Action.HOLD, Action.SHIFT]


@pytest.mark.parametrize(("rho_bg", "given"), [(0.45, 0.65), (0.5, 0.7)])
def test_t_x_shows_as_much_and_the_rate_is_sure_of_it(after_quiet, rho_bg, given):
    """Neither is enough alone: 0.3 is less than load is moved blindly for, and T_x is not sure."""
    service = after_quiet(LEASTCONN)
    service.rho_bg["s1"], service.given["s1"] = rho_bg, given
    assert run(service, 2) == [Action.HOLD, Action.SHIFT]


def test_a_weaker_neighbour_is_found_sooner_where_both_witnesses_agree_on_its_cause(after_quiet):
    """By T_x alone it takes seven intervals."""
    service = after_quiet(LEASTCONN)
    service.rho_bg["s1"], service.given["s1"] = 0.36, 0.6
    assert run(service, 3) == [Action.HOLD] * 2 + [Action.SHIFT]


def test_two_witnesses_that_agree_on_little_move_nothing_at_once(after_quiet):
    service = after_quiet(LEASTCONN)
    service.rho_bg["s1"], service.given["s1"] = 0.3, 0.75
    assert run(service, 2) == [Action.HOLD, Action.HOLD]


def test_half_an_interval_speaks_less_loudly_than_a_whole_one(after_quiet):
    def evidence(interval_s):
        service = after_quiet(LEASTCONN)
        service.given["s1"] = 0.9
        observation = replace(service.observe(), interval_s=interval_s)
        state, _ = step(service.policy, service.state, observation)
        return state.backends.known.rates.evidence[0]

    assert 0.0 < evidence(1.0) < evidence(2.0)


def gone_lately(service):
    """A neighbour of the first backend is held to have gone in the last tick."""
    gone = replace(service.state.backends, releases={"s1": Release(service.tick, returns=0)})
    service.state = replace(service.state, backends=gone)


def again(service):
    """Plans of a second suspicious interval, by agents' newer samples and by the ones before."""
    first = service.observe()
    state, plan = step(service.policy, service.state, first)
    assert plan.action is Action.HOLD
    second = service.observe()
    same = tuple(
        replace(b, sample=before.sample)
        for b, before in zip(second.backends, first.backends, strict=True)
    )
    return tuple(
        step(service.policy, state, replace(second, backends=backends))[1]
        for backends in (second.backends, same)
    )


def test_the_same_sample_of_an_agent_does_not_name_a_cause_twice(after_quiet):
    """A neighbour that two witnesses agree on, but too weak to be acted on without a cause."""
    service = after_quiet(LEASTCONN)
    service.rho_bg["s1"], service.given["s1"] = 0.4, 0.68
    assert run(service, 2) == [Action.HOLD] * 2
    newer, older = again(service)
    assert (newer.action, older.action) == (Action.SHIFT, Action.HOLD)


def test_the_same_sample_names_it_twice_where_the_cpu_is_surely_waited_for(make_service):
    """It says so by more than T_x, which is slow again; and once, if it was not there lately."""
    service = make_service(meaning=LEASTCONN, arrival_per_s=120.0)
    assert set(run(service, 21)) == {Action.HOLD}
    service.rho_bg["s1"], service.given["s1"] = 0.4, 0.85
    gone_lately(service)
    for plan in again(service):
        assert plan.action is Action.SHIFT
        assert plan.backends[0].verdict.cause is Cause.CPU


@pytest.fixture
def busy(make_service):
    """Enough requests for one interval of each witness to say something."""

    def make():
        service = make_service(meaning=LEASTCONN, arrival_per_s=120.0)
        assert set(run(service, 21)) == {Action.HOLD}
        return service

    return make


def test_one_interval_is_enough_where_all_three_witnesses_say_the_same(busy):
    service = busy()
    service.rho_bg["s1"], service.given["s1"] = 0.45, 0.6
    plan = service.run(1)
    assert plan.action is Action.SHIFT
    assert plan.backends[0].verdict.cause is Cause.CPU
    assert plan.weights["s1"] < 0.8 * plan.weights["s2"]


def test_one_interval_is_not_enough_where_the_balancer_chooses_by_weight_alone(after_quiet):
    service = after_quiet(ROUND_ROBIN)
    service.rho_bg["s1"] = 0.45
    assert run(service, 1) == [Action.HOLD]


def test_one_interval_is_not_enough_for_one_that_has_come_back(busy):
    service = busy()
    service.rho_bg["s1"], service.given["s1"] = 0.45, 0.6
    gone_lately(service)
    assert run(service, 2) == [Action.HOLD, Action.SHIFT]


def linked(after_quiet, t_c_ratio, **options):
    service = after_quiet(LEASTCONN, link_rho_bg={}, **options)
    service.link_rho_bg["s1"], service.given["s1"] = 1.0 - 1.0 / t_c_ratio, 0.5
    return service


def test_a_clear_time_to_connect_names_a_cause_twice_whatever_the_sample(after_quiet):
    """It is of the log, and that of half an interval is a new one.  The tree asks for 3."""
    for plan in again(linked(after_quiet, t_c_ratio=5.1)):
        assert plan.action is Action.SHIFT
        assert plan.backends[0].verdict.cause is Cause.NET


def test_one_that_is_not_clear_names_it_twice_by_two_samples_alone(after_quiet):
    """A neighbour on the CPU is slow to connect to as well, before a sample has seen it."""
    newer, older = again(linked(after_quiet, t_c_ratio=3.3))
    assert newer.backends[0].verdict.cause is Cause.NET
    assert older.backends[0].verdict.cause is not Cause.NET


def test_what_surely_makes_requests_dearer_is_the_cache_and_no_link(after_quiet):
    service = linked(after_quiet, t_c_ratio=5.1)
    service.cache_rho_bg["s1"] = 0.6
    run(service, 2)
    assert service.state.backends.contentions["s1"].cause is Cause.LLC


def test_a_link_whose_few_requests_are_dearer_for_being_few_is_a_link(after_quiet):
    """Half of the CPU time is the VM's own: half of the requests cost half as much again."""
    service = linked(after_quiet, t_c_ratio=5.1, idle_cores=0.08)
    for plan in again(service):
        assert plan.action is Action.SHIFT
        assert plan.backends[0].verdict.cause is Cause.NET


def test_one_interval_that_has_a_t_x_is_one_whatever_was_before(after_quiet):
    service = after_quiet(LEASTCONN)
    service.hardly_used.add("s1")
    service.rho_bg["s1"], service.given["s1"] = 0.45, 0.5
    assert set(run(service, 2)) == {Action.HOLD}
    service.hardly_used.clear()
    assert run(service, 2) == [Action.HOLD, Action.SHIFT]


def test_by_its_response_times_alone_it_is_not(after_quiet):
    service = after_quiet(ROUND_ROBIN)
    service.rho_bg["s1"], service.given["s1"] = 0.45, 0.5
    assert set(run(service, 4)) == {Action.HOLD}


def test_a_server_that_starts_slowly_is_no_victim(after_quiet):
    service = after_quiet(LEASTCONN)
    service.given["s1"] = 0.4
    assert set(run(service, 30)) == {Action.HOLD}


def test_evidence_of_the_time_before_a_shift_is_forgotten(after_quiet):
    service = after_quiet(LEASTCONN)
    service.rho_bg["s1"], service.given["s1"] = 0.45, 0.5
    run(service, 3)
    assert "s1" in service.state.backends.contentions
    assert not service.state.backends.known.rates.evidence.any()


def test_a_first_sample_of_an_idle_time_does_not_make_costs_seem_to_vary(make_service):
    service = make_service(meaning=LEASTCONN, arrival_per_s=120.0)
    first = service.observe()
    idle = tuple(
        replace(b, sample=replace(b.sample, cpu_usr_cores=0.005, cpu_sys_cores=0.0))
        for b in first.backends
    )
    service.state, _ = step(service.policy, service.state, replace(first, backends=idle))
    assert set(run(service, 21)) == {Action.HOLD}
    service.rho_bg["s1"], service.given["s1"] = 0.45, 0.6
    assert service.run(1).action is Action.SHIFT
