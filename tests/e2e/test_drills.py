"""What dies, and what then becomes of the weights: on a real HAProxy, under load.

No request may fail for it: the request path knows nothing of DIAL.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from .application import CONFIGURED, until
from .drill import Drill, said
from .product import run_dial
from .stack import SLOW_S, start_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def drill(expires_s: float) -> AsyncIterator[Drill]:
    """A stack with its log's pipe; no request may have failed at its end."""
    async with start_stack(Drill, expires_s=str(expires_s), interval_s="0.25") as stack:
        await stack.log.start()
        try:
            yield stack
            assert stack.failed == 0
        finally:
            await stack.log.cut()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(haproxy: None) -> AsyncIterator[Drill]:
    """With a watchdog and a lease of a second; the last of its tests kills its controller."""
    async with drill(expires_s=1.0) as stack:
        await stack.watchdog.start()
        yield stack
        assert await stack.watchdog.stop() == 0


async def test_a_hung_controller_that_runs_again_does_not_fight_on_with_its_old_weights(
    watched: Drill,
) -> None:
    await watched.mitigate()
    watched.signal_controller(signal.SIGSTOP)
    await watched.configured()
    watched.neighbour("s1", there=False)
    await asyncio.sleep(2.0 * SLOW_S)  # what is on its way to s1 still takes its time
    async with watched.weights_stay(CONFIGURED):
        watched.signal_controller(signal.SIGCONT)
        await watched.controller.ticks(5)
    assert await watched.controller.metric("dial_lease_lapses_total") == 1.0
    said(watched.controller.log(), "begins again: no tick was completed for the lease's 1 s")


async def test_the_watchdog_puts_the_configured_weights_back_when_the_controller_is_killed(
    watched: Drill,
) -> None:
    weights = await watched.mitigate()
    assert weights["s2"] != CONFIGURED["s2"]
    before = watched.watchdog.log()
    watched.signal_controller(signal.SIGKILL)
    await watched.proxy.admin("set weight app/s2 77")  # nobody is there to object
    wanted = CONFIGURED | {"s2": 77}

    async def put_back() -> bool:
        return await watched.proxy.weights() == wanted

    async def told() -> str:
        # Weights are written first.
        log = watched.watchdog.log().removeprefix(before)
        return log if "configured weights put back" in log else ""

    await until(put_back, "configured weights, but for the one that the admin set")
    log = await until(told, "the watchdog's word of it")
    line = said(log, r"configured weights put back.*silent_s=([\d.]+)")
    assert float(line[1]) >= 1.0
    assert watched.lease.read() is None


async def test_a_controller_started_anew_goes_on_and_a_second_one_is_refused(
    haproxy: None,
) -> None:
    async with drill(expires_s=60.0) as stack:
        await stack.mitigate()
        second = stack.directory / "second.toml"
        second.write_text(stack.controller.config.read_text())
        code, out, err = await run_dial("controller", "--config", str(second))
        assert (code, out) == (2, "")
        assert err == (
            f"dial: lease {stack.lease.path}: process {stack.controller.process.pid} writes the "
            "weights of service 'app' already; one service has one controller\n"
        )

        async with stack.load_stays_away():
            stack.signal_controller(signal.SIGKILL)
            await stack.start_controller_again()
            said(stack.controller.log(), "goes on from what was learnt")
            await stack.controller.ticks(4)
            assert (await stack.controller.backend("s1"))["cause"] != "none"
        stack.neighbour("s1", there=False)
        await stack.configured()
