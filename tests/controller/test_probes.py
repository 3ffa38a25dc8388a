"""A backend that is drained under least connections is asked now and then whether it can serve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dial.controller.guards import floor_share
from dial.controller.probes import with_probes
from dial.controller.state import Contention, Shift
from dial.controller.step import step
from dial.estimator import RhoBg
from dial.types import Action, Cause, WeightKind, WeightMeaning

EXPIRE_TICKS = 180
LEASTCONN = WeightMeaning(WeightKind.CONCURRENCY, minimum=1, maximum=256, zero_drains=True)


def contended(gone: float = 0.0) -> Contention:
    return Contention(
        Cause.CPU,
        RhoBg(0.8, 0.1),
        in_use=0.8,
        gone=gone,
        since_tick=100,
        read_tick=100,
        returns=0,
        evidence=(),
    )


def probed(
    shift: Shift,
    contentions: dict[str, Contention],
    meaning: WeightMeaning = LEASTCONN,
    *,
    tick: int,
    floor_of_even: float,
) -> Shift:
    return with_probes(
        shift,
        contentions,
        meaning,
        tick=tick,
        floor_of_even=floor_of_even,
        expire_ticks=EXPIRE_TICKS,
        in_full=dict.fromkeys(shift.weights, 100),
    )


def weight(tick: int, *, gone: float = 0.0, floor_of_even: float = 0.1) -> int:
    shift = Shift({"s1": 0.0, "s2": 1.0}, {"s1": 0, "s2": 200})
    contentions = {"s1": contended(gone)}
    found = probed(shift, contentions, tick=tick, floor_of_even=floor_of_even)
    assert found.weights["s2"] == 200
    assert found.shares == shift.shares
    return found.weights["s1"]


def test_one_tick_of_ten_for_a_floor_of_a_tenth() -> None:
    assert [tick for tick in range(100, 130) if weight(tick)] == [100, 110, 120]


def test_one_tick_of_ten_for_the_floor_of_three_backends_and_p90() -> None:
    floor_of_even = 3 * floor_share(None, 3, 90.0)  # a tenth, but for the last bit
    assert [tick for tick in range(100, 130) if weight(tick, floor_of_even=floor_of_even)] == [
        100,
        110,
        120,
    ]


def test_of_a_far_tail_whenever_half_the_time_is_over_after_which_it_is_forgotten() -> None:
    floor_of_even = 3 * floor_share(None, 3, 99.9)
    assert round(1.0 / floor_of_even) == 1000
    ticks = range(100, 100 + 2 * EXPIRE_TICKS)
    found = [tick for tick in ticks if weight(tick, floor_of_even=floor_of_even)]
    assert found == [100, 190, 280, 370]


def test_every_tick_once_something_speaks_for_its_neighbours_absence() -> None:
    assert all(weight(tick, gone=0.3) == 1 for tick in range(100, 110))


def test_no_floor_asks_for_no_probe() -> None:
    assert not any(weight(tick, floor_of_even=0.0) for tick in range(100, 130))


def test_where_a_weight_of_0_is_refused_nobody_is_given_one() -> None:
    shift = Shift({"s1": 0.0, "s2": 1.0}, {"s1": 1, "s2": 200})
    contentions = {"s1": contended()}
    meaning = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=128, zero_drains=False)
    assert probed(shift, contentions, meaning, tick=101, floor_of_even=0.0) is shift


def test_a_drained_backend_that_leaves_the_balancer_is_asked_no_more(make_service) -> None:
    service = make_service(meaning=LEASTCONN, arrival_per_s=80.0)
    service.run(20)
    service.rho_bg["s1"] = 0.8
    service.run(10)
    assert service.state.shift.shares["s1"] == 0.0
    service.names = ("s2", "s3")
    del service.weights["s1"]
    assert {b.name for b in service.run(15).backends} == {"s2", "s3"}


def test_who_takes_part_is_not_probed() -> None:
    shift = Shift({"s1": 0.1, "s2": 0.9}, {"s1": 20, "s2": 180})
    contentions = {"s1": contended()}
    assert probed(shift, contentions, tick=100, floor_of_even=0.1) is shift


def test_under_leastconn_a_victim_is_drained_probed_and_taken_back(make_service) -> None:
    service = make_service(meaning=LEASTCONN, arrival_per_s=80.0)
    service.run(20)
    service.rho_bg["s1"] = 0.8
    service.run(6)
    assert service.state.shift is not None
    assert service.weights["s1"] in (0, 1)
    before = len(service.plans)
    service.run(40)
    ticks = service.plans[before:]
    probes = [plan for plan in ticks if plan.weights["s1"] == 1]
    assert len(probes) == 4
    assert {plan.action for plan in ticks} <= {Action.HOLD, Action.PROBE, Action.SHIFT}
    assert all("probed" in plan.reason for plan in ticks if plan.action is Action.PROBE)
    service.rho_bg["s1"] = 0.0
    service.run(60)
    assert service.state.shift is None
    assert service.weights == {"s1": 100, "s2": 100, "s3": 100}


def test_a_sample_of_the_time_before_a_probe_is_no_sign_that_the_neighbour_has_gone(
    make_service,
) -> None:
    """Agents' samples end before the interval does: the first one of a probe had no load."""
    service = make_service(meaning=LEASTCONN, arrival_per_s=80.0)
    service.run(20)
    service.rho_bg["s1"] = 0.8
    service.run(8)
    drained = service.observe()
    assert service.weights["s1"] == 0
    unloaded = drained.backends[0].sample
    while service.weights["s1"] == 0:
        service.run()
        assert service.state.backends.contentions["s1"].symptom.latest == ()
    # An idle backend draws an even share under least connections, whatever its weight.
    service.given["s1"] = 100.0 / service.weights["s1"]
    found = []
    for number in range(2):
        # T_x is as in quiet times: of a victim with few requests it may well be.
        observation = service.observe({"s1": 0.025})
        victim, *others = observation.backends
        sample = replace(victim.sample if number else unloaded, interval_s=2.0)
        victim = replace(victim, sample=sample)
        observation = replace(observation, backends=(victim, *others))
        service.state, _ = step(service.policy, service.state, observation)
        contention = service.state.backends.contentions["s1"]
        found.append((len(contention.symptom.latest), contention.gone > 0.0))
    assert found == [(0, True), (1, False)]


def test_a_neighbour_on_the_link_has_no_symptom_but_response_times(make_service) -> None:
    service = make_service(meaning=LEASTCONN, arrival_per_s=80.0, link_rho_bg={})
    service.run(20)
    service.link_rho_bg["s1"] = 0.8
    service.run(8)
    contention = service.state.backends.contentions["s1"]
    assert contention.cause is Cause.NET
    assert contention.symptom is None


@pytest.mark.parametrize("kind", [WeightKind.REQUESTS, WeightKind.DRAW])
def test_where_weights_are_shares_the_floor_stays(make_service, kind: WeightKind) -> None:
    meaning = WeightMeaning(kind, minimum=1, maximum=256, zero_drains=True)
    service = make_service(meaning=meaning, arrival_per_s=80.0)
    service.run(20)
    service.rho_bg["s1"] = 0.8
    service.run(10)
    assert service.weights["s1"] >= 10


# ---------------------------------------------------------------- where requests go by delay


def probed_weight(tick: int, *, read_tick: int, gone: float = 0.0, before: bool = False) -> int:
    """Of a victim that has been one since tick 100."""
    shift = Shift({"s1": 0.35, "s2": 0.65}, {"s1": 55, "s2": 100})
    found = with_probes(
        shift,
        {"s1": replace(contended(gone), read_tick=read_tick)},
        replace(LEASTCONN, kind=WeightKind.SERVICE_RATE),
        tick=tick,
        floor_of_even=0.1,
        expire_ticks=EXPIRE_TICKS,
        in_full={"s1": 100, "s2": 100},
        likely_gone=2.5,
        probed=["s1"] if before else [],
    )
    assert found.weights["s2"] == 100
    assert found.resting == ({"s1": 55} if found.weights["s1"] == 100 else {})
    return found.weights["s1"]


def test_who_has_said_nothing_for_ten_ticks_is_probed_with_all_its_weight() -> None:
    assert [probed_weight(tick, read_tick=104) for tick in (105, 113, 114, 115)] == [
        55,
        55,
        100,
        100,
    ]


def test_a_victim_that_speaks_is_not_probed() -> None:
    assert {probed_weight(tick, read_tick=tick - 5, gone=1.0) for tick in range(105, 140)} == {55}


def test_a_probe_goes_on_while_it_speaks_for_the_neighbours_absence() -> None:
    assert probed_weight(121, read_tick=120, gone=0.5, before=True) == 100
    assert probed_weight(121, read_tick=120, gone=0.0, before=True) == 55


def test_whose_neighbour_has_probably_gone_has_all_its_weight() -> None:
    assert probed_weight(121, read_tick=120, gone=2.4) == 55
    assert probed_weight(121, read_tick=120, gone=2.5) == 100


def test_after_a_probe_the_weight_is_what_it_was() -> None:
    shift = Shift({"s1": 0.35, "s2": 0.65}, {"s1": 100, "s2": 100}, resting={"s1": 55})
    found = probed(shift, {"s1": contended()}, tick=101, floor_of_even=0.1)
    assert (found.weights, found.resting) == ({"s1": 55, "s2": 100}, {})
