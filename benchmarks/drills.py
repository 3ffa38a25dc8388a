"""What clients see when something breaks, with DIAL and with static weights.

Each drill runs two services side by side (:mod:`benchmarks.support.arms`): one with a
controller, its watchdog and agents, one with the weights of its configuration.  A neighbour
takes half of s1 on both, DIAL has moved load away, and then the same thing happens to both, as
far as both have it.

``errors``
    Requests that failed with DIAL, from the event on; ``errors_static`` without.
``p90_ratio``
    P90 of the response time from the event on, with DIAL over without.
``state_shown``
    Whether what happened could be seen: in ``/v1/state``, a metric, or a log.
``put_back_s``
    Where a controller dies or hangs: until the configured weights were in force.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import httpx

from benchmarks.support.arms import EXPIRES_S, Arm, Seen, offer
from benchmarks.support.events import DRILLS, Drill, Shown
from benchmarks.support.harness import machine, report, versions
from dial.errors import BalancerError
from tests.e2e.application import CONFIGURED
from tests.e2e.stack import background, start_stack

_SETTLE_S = 4.0
"""After load has moved: until the queue that the neighbour made is gone."""


@dataclass(slots=True)
class Watch:
    """What could be seen of the arm with DIAL since the event."""

    arm: Arm
    shown: Shown
    state_shown: bool = False
    put_back_s: float | None = None

    async def look(self) -> None:
        """Look until it has been seen."""
        while not self.state_shown:
            # A controller that is dead or stopped does not answer.
            with suppress(httpx.HTTPError, AssertionError):
                self.state_shown = await self.shown(self.arm)
            await asyncio.sleep(0.1)

    async def weigh(self) -> None:
        """Wait for the configured weights."""
        begin_s = time.monotonic()
        while self.put_back_s is None:
            with suppress(BalancerError):
                if await self.arm.proxy.weights() == CONFIGURED:
                    self.put_back_s = time.monotonic() - begin_s
            await asyncio.sleep(0.05)


async def measure(drill: Drill, seed: int, seconds: float) -> dict[str, object]:
    """Run one drill on both arms."""
    async with AsyncExitStack() as closing:
        static = await closing.enter_async_context(start_stack(Arm, run=False))
        arm = await closing.enter_async_context(start_stack(Arm))
        arm.has_dial = True
        for each in (static, arm):
            await each.log.start()
            closing.push_async_callback(each.log.cut)
        await arm.watchdog.start()
        closing.push_async_callback(arm.watchdog.stop)
        await closing.enter_async_context(background(offer((static, arm), seed)))
        await arm.learnt()
        if not drill.quiet:
            for each in (static, arm):
                each.neighbour("s1", there=True)
            await arm.moved_away_from("s1")
        await asyncio.sleep(_SETTLE_S)

        watch = Watch(arm, drill.shown)
        begin_s = time.monotonic()
        async with background(watch.look()), background(watch.weigh()):
            async with asyncio.timeout(seconds):
                await asyncio.gather(drill.event(static), drill.event(arm))
            await asyncio.sleep(begin_s + seconds - time.monotonic())
        end_s = time.monotonic()
        await asyncio.sleep(_SETTLE_S)  # what was sent last is answered by then
        with_dial, without = (Seen.of(each.answers, begin_s, end_s) for each in (arm, static))
    result: dict[str, object] = {
        "errors": with_dial.errors,
        "errors_static": without.errors,
        "p90_ratio": with_dial.p90_ms / without.p90_ms,
        "p90_ms": with_dial.p90_ms,
        "p90_static_ms": without.p90_ms,
        "requests": with_dial.requests,
        "state_shown": watch.state_shown,
    }
    if drill.puts_back:
        result["put_back_s"] = watch.put_back_s
    return result


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drills", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured from the event on")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and service times")
    parser.add_argument("--drill", choices=DRILLS, action="append", help="only this one; repeat")
    arguments = parser.parse_args()

    results = {}
    head = f"{'drill':20}{'errors':>7}{'static':>7}{'P90 ms':>8}{'static':>8}{'ratio':>7}"
    print(head, file=sys.stderr)
    for name in arguments.drill or DRILLS:
        found = asyncio.run(measure(DRILLS[name], arguments.seed, arguments.seconds))
        results[name] = found
        line = (
            f"{name:20}{found['errors']:>7}{found['errors_static']:>7}"
            f"{found['p90_ms']:>8.1f}{found['p90_static_ms']:>8.1f}{found['p90_ratio']:>7.2f}"
            f"{'' if found['state_shown'] else '  not shown'}"
        )
        print(line, file=sys.stderr)
    result = {
        "benchmark": "drills",
        "drills": results,
        "seconds": arguments.seconds,
        "lease_expires_s": EXPIRES_S,
        "machine": machine(),
        "versions": versions("dial-lb", "dial-lb-haproxy"),
    }
    report([], result, as_json=arguments.json)


if __name__ == "__main__":
    main()
