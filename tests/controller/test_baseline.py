"""How much quiet time what is normal rests on, and whose normal is slower than its siblings'."""

from __future__ import annotations

import numpy as np
import pytest

from dial.controller.baseline import Baselines
from dial.controller.step import step

from .world import World


def baselines(service) -> Baselines:
    return Baselines.of(service.policy, service.state.backends, interval_s=2.0)


@pytest.mark.parametrize("detect", ["cusum", "band"])
def test_a_neighbour_that_was_there_from_the_start_is_normal_and_doubtful(make_service, detect):
    service = make_service(strategies={"detect": detect}, rho_bg={"s1": 0.4})
    service.run(20)
    assert {b.verdict.cause for b in service.plans[-1].backends} == {"none"}
    found = baselines(service)
    # 170/3 = 56.7 of 90 requests/s that are left, and of 150: 93.3/33.3.
    assert found.ratio == pytest.approx([2.8, 1.0, 1.0], rel=0.01)
    assert found.doubtful.tolist() == [True, False, False]
    assert found.learnt.tolist() == [20, 20, 20]


def test_what_is_learnt_grows_with_quiet_intervals_alone(service):
    before = baselines(service).learnt
    service.run(3)
    assert (baselines(service).learnt - before).tolist() == [3, 3, 3]
    service.rho_bg["s2"] = 0.6
    service.run(6)
    assert service.state.shift is not None
    shifted = baselines(service).learnt
    service.run(5)
    assert (baselines(service).learnt == shifted).all()
    assert not baselines(service).doubtful.any()


def test_nothing_is_said_of_the_siblings_before_enough_is_learnt(make_service):
    service = make_service(rho_bg={"s1": 0.4})
    service.run(service.policy.learn_intervals - 1)
    found = baselines(service)
    assert np.isnan(found.ratio).all()
    assert not found.doubtful.any()


def test_a_backend_without_siblings_has_none_to_be_slower_than(make_service):
    service = make_service(names=("s1",), arrival_per_s=60.0)
    service.run(20)
    assert np.isnan(baselines(service).ratio).all()


def test_of_noise_alone_no_baseline_is_doubtful(make_service):
    service = make_service()
    random = np.random.default_rng(5)
    for _ in range(40):
        # Of a hundred requests T90 is off by some 13 %.
        noise = {name: random.lognormal(0.0, 0.13) for name in service.names}
        service.state, _ = step(service.policy, service.state, service.observe(noise))
    assert not baselines(service).doubtful.any()


async def test_the_controller_shows_them_with_each_plan(service):
    world = World(service)
    await world.controller.begin()
    assert world.publisher.current.baselines is None
    await world.pass_ticks(5)
    shown = world.publisher.current.baselines
    assert shown is not None
    assert (shown.learnt.tolist(), shown.interval_s) == ([5, 5, 5], 2.0)
