"""What breaks around a controller that lives: it shows it, holds, and goes on.

One stack in mid-mitigation for all of them; each leaves it as it found it.  No request may
fail for any of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .application import CONFIGURED, Member, until
from .drill import Drill
from .product import sample
from .stack import start_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(haproxy: None) -> AsyncIterator[Drill]:
    async with start_stack(Drill, interval_s="0.25") as stack:
        await stack.log.start()
        await stack.mitigate()
        yield stack
        await stack.log.cut()


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def in_mitigation(stack: Drill) -> AsyncIterator[None]:
    """Load is away from s1; and no request fails."""
    if "s1" in stack.denied:
        await stack.moved_away_from("s1")
    yield
    assert stack.failed == 0


async def test_a_reload_loses_the_weights_for_a_tick(stack: Drill) -> None:
    restored = await stack.controller.metric("dial_plans_total", action="restore")
    await stack.proxy.reload()
    await stack.moved_away_from("s1")
    assert await stack.controller.metric("dial_plans_total", action="restore") == restored + 1.0


async def test_a_socket_that_is_gone_is_shown_and_the_weights_stay(stack: Drill) -> None:
    socket = stack.proxy.runtime
    away = socket.with_name("away")
    there = f"runtime socket unix:{socket}: No such file or directory"

    async def shown() -> bool:
        ready = await stack.controller.ready()
        return not ready and there in str((await stack.controller.state())["trouble"])

    socket.rename(away)
    try:
        await until(shown, "trouble")
    finally:
        away.rename(socket)
    async with stack.load_stays_away():
        await until(stack.controller.ready, "ready again")
        await stack.controller.ticks(2)


async def test_the_agent_of_the_victim_dies(stack: Drill) -> None:
    stack.silent.add("s1")

    async def shown() -> bool:
        return (await stack.controller.backend("s1"))["agent"] is not None

    async with stack.load_stays_away():
        await until(shown, "that there is no sample")
        await stack.controller.ticks(4)
        assert (await stack.controller.backend("s1"))["cause"] != "none"
    stack.silent.discard("s1")


@pytest.mark.parametrize(("skew_s", "reason"), [(-3600.0, "stale"), (3600.0, "future")])
async def test_a_clock_that_is_wrong_is_counted_and_named_to_the_agent(
    stack: Drill, skew_s: float, reason: str
) -> None:
    stack.silent.add("s1")
    counted = "dial_sample_batches_refused_total"
    before = await stack.controller.metric(counted, reason=reason)
    async with stack.load_stays_away():
        for _ in range(4):
            answer = await stack.controller.post(
                sample("s1", denied=False, at_s=time.time() + skew_s)
            )
            assert answer.status_code == 422
            assert "compare the clocks of VM and controller" in answer.text
            await stack.controller.ticks(1)
    assert await stack.controller.metric(counted, reason=reason) == before + 4
    stack.silent.discard("s1")


async def test_a_log_that_is_cut_is_shown_and_the_weights_stay_until_it_is_back(
    stack: Drill,
) -> None:
    async def without_log() -> bool:
        s1 = await stack.controller.backend("s1")
        return bool("no log line came" in str(s1["t_x_ms"]) and s1["rate_per_s"] > 0.0)

    async def with_log() -> bool:
        return isinstance((await stack.controller.backend("s1"))["t_x_ms"], float)

    async with stack.load_stays_away():
        await stack.log.cut()
        await until(without_log, "that requests are sent, and no line of them comes")
        await stack.controller.ticks(4)
        await stack.log.start()
        await until(with_log, "T_x is known again")
        await stack.controller.ticks(2)


async def test_a_garbled_log_is_counted_and_the_weights_stay(stack: Drill) -> None:
    chance = random.Random(1)

    def garble(chunk: bytes) -> bytes:
        return bytes(chance.choice((byte, byte, byte, 44, 10)) for byte in chunk)

    before = await stack.controller.metric("dial_log_lines_malformed_total")
    async with stack.load_stays_away():
        stack.log.change = garble
        await stack.controller.ticks(4)
        stack.log.change = bytes
        await stack.controller.ticks(2)
    assert await stack.controller.metric("dial_log_lines_malformed_total") > before


@pytest.mark.parametrize(("state", "flag"), [("drain", "8"), ("maint", "1")])
async def test_what_the_admin_takes_out_stays_out(stack: Drill, state: str, flag: str) -> None:
    await stack.proxy.admin(f"set server app/s3 state {state}")

    async def out() -> bool:
        return (await stack.controller.backend("s3"))["usable"] is False

    await until(out, "s3 is seen as out of service")
    weights = await stack.proxy.weights()
    for _ in range(4):
        await stack.controller.ticks(1)
        assert (await stack.proxy.weights())["s3"] == weights["s3"]
        rows = (await stack.proxy.admin("show servers state app")).splitlines()[2:]
        admin_states = {row.split()[3]: row.split()[6] for row in rows}
        assert admin_states == {"s1": "0", "s2": "0", "s3": flag}
    await stack.proxy.admin("set server app/s3 state ready")
    await stack.moved_away_from("s1")


async def test_a_server_that_the_admin_adds_takes_part_and_is_forgotten_when_removed(
    stack: Drill,
) -> None:
    member = Member(stack.directory / "s4")
    await member.start()
    added = f"add server app/s4 unix@{member.path} weight 100"
    assert "New server registered" in await stack.proxy.admin(added)
    await stack.proxy.admin("set server app/s4 state ready")

    async def served() -> bool:
        s4 = await stack.controller.backend("s4")
        return bool(s4 and s4["usable"] and s4["rate_per_s"] > 0.0)

    await until(served, "s4 has requests")
    await stack.moved_away_from("s1")
    await stack.proxy.admin("set server app/s4 state maint")

    async def removed() -> bool:
        return "deleted" in await stack.proxy.admin("del server app/s4")

    await until(removed, "s4 is idle and removed")

    async def forgotten() -> bool:
        return not await stack.controller.backend("s4")

    await until(forgotten, "s4 is not shown any more")
    assert (await stack.controller.state())["trouble"] is None
    await stack.moved_away_from("s1")
    await member.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quiet(stack: Drill) -> Drill:
    """The neighbour has gone."""
    stack.neighbour("s1", there=False)
    await stack.configured()
    return stack


@pytest.mark.parametrize("lie", ["always denied", "random", "frozen"])
async def test_agents_that_lie_move_nothing_while_the_log_shows_nothing(
    quiet: Drill, lie: str
) -> None:
    chance = random.Random(lie)
    once = time.time()
    quiet.silent.update(CONFIGURED)
    async with quiet.weights_stay(CONFIGURED):
        for _ in range(6):
            for name in CONFIGURED:
                metrics = {"cpu_usr_cores": 0.5}
                if lie == "random":
                    metrics = {
                        "cpu_usr_cores": chance.uniform(0.0, 64.0),
                        "cpu_sys_cores": chance.uniform(0.0, 64.0),
                        "run_queue_wait_cores": chance.uniform(0.0, 64.0),
                        "throttled_fraction": chance.random(),
                    }
                at_s = once if lie == "frozen" else time.time()
                body = sample(name, denied=lie != "frozen", at_s=at_s, **metrics)
                assert (await quiet.controller.post(body)).status_code == 202
            await quiet.controller.ticks(1)
    quiet.silent.clear()


async def test_a_weight_that_the_admin_sets_is_his_and_load_stays_where_he_wants_it(
    quiet: Drill,
) -> None:
    quiet.neighbour("s1", there=True)
    await quiet.moved_away_from("s1")
    await quiet.settled()
    await quiet.proxy.admin("set weight app/s3 77")
    his = CONFIGURED | {"s3": 77}

    async def yielded() -> bool:
        return await quiet.proxy.weights() == his

    await until(yielded, "DIAL's own weights are withdrawn")
    async with quiet.weights_stay(his):
        await quiet.controller.ticks(4)
        state = await quiet.controller.state()
        assert state["action"] == "yield"
        assert "changed by somebody else: s3" in state["reason"]
