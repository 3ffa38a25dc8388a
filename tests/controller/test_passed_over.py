"""What the balancer's own choice says of a backend, and what is made of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dial.controller.passed_over import PassedOver, passed_over
from dial.controller.step import step
from dial.types import Action, NoData, WeightKind, WeightMeaning

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
def after_quiet(make_service):
    """Makes a service whose quiet past is known."""

    def make(meaning):
        service = make_service(meaning=meaning, arrival_per_s=120.0)
        assert set(run(service, 21)) == {Action.HOLD}
        return service

    return make


def seen(make_service, given=None, **changes):
    service = make_service(meaning=LEASTCONN, arrival_per_s=200.0, **changes)
    service.given = given or {}
    return service.observe()


def test_half_the_rate_of_its_siblings_is_half_of_the_capacity_lost(make_service):
    # 40 requests/s beside 80 and 80, for two seconds each.
    found = passed_over(seen(make_service, {"s1": 0.5}), quiet=True)["s1"]
    assert isinstance(found, PassedOver)
    assert found.residual == pytest.approx(math.log(2.0))
    assert found.sd == pytest.approx(math.sqrt(1 / 80 + 1 / 320))
    assert found.rho_bg(0.0).mean == pytest.approx(0.5)
    assert found.rho_bg(0.0).sd == pytest.approx(0.5 * found.sd)


def test_a_machine_that_always_gets_less_is_not_passed_over(make_service):
    found = passed_over(seen(make_service, {"s1": 0.5}), quiet=True)["s1"]
    assert isinstance(found, PassedOver)
    assert found.rho_bg(quiet=math.log(2.0)).mean == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("meaning", "quiet", "why"),
    [
        (replace(LEASTCONN, kind=WeightKind.REQUESTS), True, "by weight alone"),
        (LEASTCONN, False, "load is shifted"),
    ],
)
def test_rates_that_the_weights_make_say_nothing(make_service, meaning, quiet, why):
    observation = replace(seen(make_service), meaning=meaning)
    for found in passed_over(observation, quiet=quiet).values():
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
    assert isinstance(passed_over(observation, quiet=True)["s1"], PassedOver)


def test_who_is_not_used_is_neither_compared_nor_compared_with(make_service):
    service = make_service(meaning=LEASTCONN)
    service.unusable = {"s3"}
    found = passed_over(service.observe(), quiet=True)
    assert isinstance(found["s3"], NoData)
    assert isinstance(found["s1"], PassedOver)
    assert found["s1"].residual == pytest.approx(0.0)
    service.unusable = {"s2", "s3"}
    assert isinstance(passed_over(service.observe(), quiet=True)["s1"], NoData)


def test_a_victim_that_the_balancer_passes_over_is_found_in_two_intervals(after_quiet):
    service = after_quiet(LEASTCONN)
    service.rho_bg["s1"], service.given["s1"] = 0.45, 0.5
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
    assert service.state.backends["s1"].contention is not None
    assert all(known.rates.evidence == 0.0 for known in service.state.backends.values())
