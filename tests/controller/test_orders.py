"""Operators' orders: what a freeze and a weight by hand do to plans, writes and restarts."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from dial.controller.replay import replay
from dial.controller.step import step
from dial.errors import IntakeError, SettingError
from dial.intake.orders import OrderBook
from dial.lease import LeaseFile
from dial.types import Action, Cause, Mode, Orders, Override

from .conftest import PEAK_RPS
from .world import World

CONFIGURED = {"s1": 100, "s2": 100, "s3": 100}
FROZEN = Orders(frozen_since_s=1_000_000.0)


@pytest.fixture
def make(service, tmp_path):
    """Build a controller, or its successor, with a lease."""

    def build(**settings) -> World:
        world = World(service, lease={"path": tmp_path / "app.lease"}, **settings)
        world.file = LeaseFile(tmp_path / "app.lease", "app")
        return world

    return build


def by_hand(**weights: int) -> Orders:
    return Orders(overrides=tuple(Override(n, w, 1_000_600.0) for n, w in sorted(weights.items())))


def freeze_a_shift_that_nobody_needs(service) -> None:
    """s1 is found, frozen without its load, and its neighbour goes: nothing is held of it."""
    service.rho_bg["s1"] = 0.6
    service.run(8)
    service.orders = FROZEN
    service.rho_bg.clear()
    service.run(20)
    assert not service.state.backends.contentions


# ---------------------------------------------------------------- step


def test_frozen_weights_stay_whatever_is_found_and_the_verdict_goes_on(service):
    service.orders = FROZEN
    service.rho_bg["s1"] = 0.6
    plan = service.run(6)
    assert plan.action is Action.FREEZE
    assert plan.reason == "weights are frozen by an operator since 13:46:40 UTC"
    assert service.weights == CONFIGURED
    assert plan.backends[0].verdict.cause == "cpu"


def test_frozen_in_a_shift_the_shift_stays_though_the_neighbour_leaves(service):
    service.rho_bg["s1"] = 0.6
    service.run(6)
    weights = dict(service.weights)
    assert weights["s1"] < 60
    service.orders = FROZEN
    service.rho_bg.clear()
    service.run(40)
    assert service.weights == weights
    service.orders = Orders()
    service.run(20)
    assert service.weights == CONFIGURED


def test_a_backend_that_is_kept_from_its_load_is_not_slow_by_taking_as_long_as_ever(service):
    """M/M/1's T90 would be a third lower there: requests that wait for nobody are as slow."""
    freeze_a_shift_that_nobody_needs(service)
    even_per_s = service.arrival_per_s / 3
    for tick in range(40):
        rate_per_s = service.arrival_per_s * service.weights["s1"] / sum(service.weights.values())
        as_ever = (PEAK_RPS - rate_per_s) / (PEAK_RPS - even_per_s)
        wobble = 1.05 if tick % 2 else 0.95
        noise = dict.fromkeys(service.names, wobble) | {"s1": wobble * as_ever}
        service.state, plan = step(service.policy, service.state, service.observe(noise))
        assert plan.backends[0].verdict.cause is Cause.NONE
    assert as_ever > 1.3
    assert service.state.backends.known.cusum.evidence[0] == 0.0


def test_a_backend_that_is_kept_from_its_load_is_no_victim_because_few_requests_are_dear(
    with_idle_cores,
):
    service = with_idle_cores
    freeze_a_shift_that_nobody_needs(service)
    for _ in range(3):
        service.state, _ = step(service.policy, service.state, service.observe({"s1": 3.0}))
    service.run(60)
    assert not service.state.backends.contentions
    assert service.plans[-1].backends[0].verdict.cause is Cause.NONE


def test_unfrozen_load_moves_away_from_whoever_was_found_meanwhile(service):
    service.orders = FROZEN
    service.rho_bg["s1"] = 0.6
    service.run(6)
    service.orders = Orders()
    plan = service.run(1)
    assert plan.action is Action.SHIFT
    assert service.weights["s1"] < 100


def test_weights_lost_in_a_reload_are_not_written_again_while_frozen(service):
    service.rho_bg["s1"] = 0.6
    service.run(6)
    service.orders = FROZEN
    service.run(1)
    service.reload()
    assert service.run(3).changes == ()
    service.orders = Orders()
    service.run(1)
    assert service.weights["s1"] < 60


def test_whoever_else_writes_is_right_while_frozen_too(service):
    service.rho_bg["s1"] = 0.6
    service.run(6)
    service.orders = FROZEN
    service.run(1)
    service.weights["s2"] = 7
    plan = service.run(1)
    assert (plan.action, plan.changes) == (Action.YIELD, ())


def test_a_weight_by_hand_is_written_shown_and_taken_back_at_its_end(service):
    service.orders = by_hand(s2=20)
    plan = service.run(1)
    assert service.weights == {"s1": 100, "s2": 20, "s3": 100}
    assert plan.action is Action.OVERRIDE
    assert plan.reason == "an operator set s2 to 20 until 13:56:40 UTC"
    assert [b.share for b in plan.backends] == pytest.approx([100 / 220, 20 / 220, 100 / 220])
    assert service.run(5).changes == ()
    service.orders = Orders()
    plan = service.run(1)
    assert service.weights == CONFIGURED
    assert (plan.action, plan.reason) == (Action.OVERRIDE, "the override of s2 has ended")
    plan = service.run(1)
    assert (plan.action, plan.changes) == (Action.HOLD, ())
    assert service.state.shift is None


def test_a_weight_by_hand_whose_end_cannot_be_written_is_nobody_elses(service):
    service.orders = by_hand(s2=20)
    service.run(3)
    service.orders = Orders()
    service.run(2, apply=False)
    plan = service.run(1)
    assert plan.action is not Action.YIELD
    assert service.weights == CONFIGURED


def test_a_weight_by_hand_of_a_backend_that_left_is_passed_over(service):
    service.orders = by_hand(gone=20)
    plan = service.run(2)
    assert (plan.action, plan.changes) == (Action.HOLD, ())


def test_beside_a_neighbour_the_weight_by_hand_stands_and_the_others_are_the_plans(service):
    service.orders = by_hand(s1=100)
    service.rho_bg["s1"] = 0.6
    plan = service.run(6)
    assert service.weights["s1"] == 100
    assert service.weights["s2"] > 100
    assert plan.reason.startswith("an operator set s1 to 100 until 13:56:40 UTC; load ")
    service.orders = Orders()
    service.run(1)
    assert service.weights["s1"] < service.weights["s2"] / 2


def test_a_victim_with_a_weight_by_hand_goes_out_of_service_and_comes_back(make_service):
    service = make_service(arrival_per_s=330.0)
    service.run(20)
    service.rho_bg["s2"] = 0.35  # of which its new share would be so near that it is held
    service.run(10)
    service.orders = by_hand(s2=60)
    service.run(2)
    assert service.weights["s2"] == 60
    service.unusable.add("s2")
    plan = service.run(3)
    assert "s2" not in dict(plan.changes)
    service.unusable.clear()
    service.run(3)
    assert service.weights["s2"] == 60
    service.orders = Orders()
    plan = service.run(3)
    assert plan.backends[1].verdict.cause == "cpu"
    assert 0.0 < plan.backends[1].share < 0.3


def test_a_weight_changed_by_somebody_else_ends_the_weight_by_hand(service):
    service.orders = by_hand(s2=20)
    service.run(2)
    service.weights["s2"] = 33
    plan = service.run(1)
    assert (plan.action, plan.changes) == (Action.YIELD, ())
    assert plan.reason == "weights were changed by somebody else: s2 20 to 33"


def test_an_end_while_frozen_is_written_after_it(service):
    service.orders = by_hand(s2=20)
    service.run(2)
    service.orders = FROZEN
    service.run(2)
    assert service.weights["s2"] == 20
    service.orders = Orders()
    service.run(1)
    assert service.weights == CONFIGURED


# ---------------------------------------------------------------- the controller around it


async def test_while_frozen_the_lease_is_renewed_and_names_the_weights(make):
    world = make()
    weights = await world.shift()
    await world.orders.freeze()
    writes = len(world.balancer.writes)
    world.service.rho_bg.clear()
    await world.pass_ticks(30)
    assert world.service.weights == weights
    assert len(world.balancer.writes) == writes
    lease = world.file.read()
    assert lease.renewed == world.now()
    assert lease.to_put_back(await world.balancer.read())["s1"] == 100
    assert world.publisher.current.mode is Mode.FROZEN
    assert world.publisher.current.orders.frozen
    world.orders.unfreeze()
    await world.pass_ticks(20)
    assert world.service.weights == CONFIGURED
    assert world.publisher.current.mode is Mode.ENFORCE


async def test_no_weight_is_written_after_the_answer_to_freeze_not_even_in_mid_tick(make):
    world = make()
    await world.controller.begin()
    await world.pass_ticks(10)
    world.service.rho_bg["s1"] = 0.6
    await world.pass_ticks(1)
    apply, asked = world.balancer.apply, []

    async def apply_slowly(weights, *, version):
        # Asked in the middle of a write: answered when it has ended.
        asked.append(asyncio.create_task(world.orders.freeze()))
        await asyncio.sleep(0)
        assert not asked[0].done()
        return await apply(weights, version=version)

    world.balancer.apply = apply_slowly
    await world.pass_ticks(1)
    await asked[0]
    weights = dict(world.service.weights)
    assert weights["s1"] < 100
    await world.pass_ticks(5)
    assert len(asked) == 1
    assert world.service.weights == weights


async def test_a_clean_stop_puts_the_configured_weights_back_though_frozen(make):
    world = make()
    await world.shift()
    await world.orders.freeze()
    await world.controller.end()
    assert world.service.weights == CONFIGURED
    assert world.file.read() is None


async def test_who_is_started_after_a_crash_goes_on_frozen_with_the_weights_in_force(make):
    first = make()
    weights = await first.shift()
    await first.orders.freeze()
    await first.pass_ticks(1)
    second = make()
    await second.controller.begin()
    await second.pass_ticks(10)
    assert second.service.weights == weights
    assert second.publisher.current.mode is Mode.FROZEN
    assert second.balancer.writes == []
    assert second.file.read().renewed == second.now()


async def test_weights_that_a_watchdog_took_back_stay_taken_back_while_frozen(make):
    first = make()
    await first.shift()
    await first.orders.freeze()
    first.service.weights = dict(CONFIGURED)
    second = make()
    await second.controller.begin()
    await second.pass_ticks(10)
    assert second.service.weights == CONFIGURED
    assert second.balancer.writes == []


async def test_a_frozen_controller_whose_lease_cannot_be_renewed_says_so_and_writes_nothing(
    make, monkeypatch
):
    world = make()
    weights = await world.shift()
    await world.orders.freeze()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(LeaseFile, "write", fail)
    await world.pass_ticks(1)
    assert world.publisher.current.trouble.startswith("frozen, but the lease cannot be renewed")
    assert world.service.weights == weights


async def test_a_weight_by_hand_is_under_the_lease_and_ends_by_itself(make):
    world = make()
    await world.controller.begin()
    await world.pass_ticks(3)
    world.orders.override("s2", 20, for_s=5.0)
    await world.pass_ticks(1)
    assert world.service.weights["s2"] == 20
    assert world.file.read().weights == {"s2": (20,)}
    await world.pass_ticks(3)  # 2 s each
    assert world.service.weights == CONFIGURED
    await world.pass_ticks(1)
    assert world.file.read() is None
    assert world.orders.now() == Orders()


async def test_what_was_ordered_replays(make, tmp_path):
    path = tmp_path / "r.jsonl"
    world = make(record={"path": path})
    await world.shift()
    world.orders.override("s3", 50, for_s=4.0)
    await world.pass_ticks(5)
    await world.orders.freeze()
    await world.pass_ticks(3)
    await world.controller.end()
    result = replay(path)
    assert (result.ticks, result.mismatches) == (22, ())


# ---------------------------------------------------------------- the book


@pytest.fixture
def book(make) -> OrderBook:
    return make().orders


def refusal(order, *arguments, **named) -> tuple[str, str]:
    with pytest.raises(IntakeError) as caught:
        order(*arguments, **named)
    return caught.value.reason, str(caught.value)


async def test_orders_that_cannot_be_followed_are_one_clear_error_each(make):
    world = make()
    book = world.orders
    assert refusal(book.override, "s1", 10, 60.0)[0] == "not_ready"
    await world.controller.begin()
    assert refusal(book.override, "s9", 10, 60.0) == (
        "not_found",
        "backend 's9': the load balancer has no such backend; it has: s1, s2, s3",
    )
    assert refusal(book.override, "s1", 257, 60.0) == (
        "out_of_range",
        "weight = 257: this load balancer takes 1 to 256; to take a backend out, drain it there",
    )
    assert refusal(book.override, "s1", 0, 60.0)[0] == "out_of_range"
    assert refusal(book.override, "s1", 10, 86_401.0)[0] == "out_of_range"
    assert refusal(book.end_override, "s1")[0] == "not_found"
    await book.freeze()
    assert refusal(book.override, "s1", 10, 60.0)[0] == "frozen"
    assert book.now().overrides == ()


async def test_in_shadow_mode_there_is_nothing_to_order(make):
    world = make(mode=Mode.SHADOW)
    await world.controller.begin()
    reason, message = refusal(world.orders.override, "s1", 10, 60.0)
    assert reason == "not_enforcing"
    assert "mode = shadow" in message
    with pytest.raises(IntakeError, match="nothing to freeze"):
        await world.orders.freeze()


async def test_a_weight_by_hand_goes_on_after_a_restart_for_what_is_left_of_it(make):
    first = make()
    await first.controller.begin()
    first.orders.override("s1", 10, for_s=600.0)
    first.orders.override("s2", 10, for_s=5.0)
    first.orders.end_override("s2")
    second = make()
    assert [o.backend for o in second.orders.now().overrides] == ["s1"]
    second.clock.advance(599.0)
    assert second.orders.now().overrides
    second.clock.advance(1.0)
    assert second.orders.now() == Orders()
    assert not second.file.beside("orders").exists()


async def test_orders_that_cannot_be_read_are_taken_for_a_freeze(make):
    path = make().file.beside("orders")
    path.write_text("{")
    with capture_logs() as logs:
        assert make().orders.now().frozen
    assert logs[0]["event"] == "orders not read, so frozen"


async def test_orders_of_another_service_are_refused(make):
    path = make().file.beside("orders")
    path.write_text('{"format":1,"service":"other","frozen_since_s":1.0,"overrides":[]}')
    with pytest.raises(SettingError, match="orders of service 'other'"):
        make()


async def test_a_freeze_holds_though_it_cannot_be_kept(make, monkeypatch):
    book = make().orders

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dial.handover.write_in_place", fail)
    with capture_logs() as logs:
        assert (await book.freeze()).frozen
    assert logs[0]["event"] == "orders not kept"
