"""The runtime: the only place that schedules and sleeps.

One process, one event loop, three tasks: the log reader fills windows, the HTTP service
fills the inbox, and the tick loop empties both, asks ``step``, and applies the plan
(:mod:`dial.controller.control`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

import structlog

from dial.adapter import Adapter, load_adapter
from dial.clock import Clock, SystemClock
from dial.controller.assembly import Assembly
from dial.errors import BalancerError
from dial.lease import LeaseFile
from dial.metrics import Metrics
from dial.service.server import serve
from dial.settings import Settings
from dial.telemetry import RequestWindows
from dial.types import Mode

log = structlog.get_logger("dial.controller")


async def read_log(adapter: Adapter, windows: RequestWindows, metrics: Metrics) -> None:
    """Fill the windows until the adapter is closed."""
    async for batch in adapter.requests():
        windows.add(batch)
        metrics.log_lines_malformed.inc(batch.malformed)
        metrics.log_requests_unattributed.inc(batch.unattributed)
        metrics.log_requests_dropped.inc(batch.dropped)


async def run(settings: Settings, clock: Clock | None = None) -> None:
    """Run a controller until SIGTERM or SIGINT.

    Raises
    ------
    DialError
        If it cannot start: settings, model, adapter or balancer.  Once it runs, trouble is
        shown and retried, never raised.
    """
    clock = clock or SystemClock()
    adapter = load_adapter(settings.adapter.name)(settings.service, settings.adapter.options)
    parts = Assembly.of(settings, adapter, clock)
    controller = parts.controller()
    stop = stop_on_signals()
    with _sole_writer(settings):
        async with closing(adapter), serve(parts.app(), settings.api) as port:
            reader = asyncio.create_task(
                read_log(adapter, parts.windows, parts.metrics), name="log reader"
            )
            log.info("started", service=settings.service, mode=settings.mode, port=port)
            try:
                await controller.begin()
                await tick_until(
                    stop, reader, controller, settings.interval_s, clock, suspicious=controller
                )
            finally:
                await controller.end()
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)
                parts.tracer.close()
                log.info("stopped")


def _sole_writer(settings: Settings) -> contextlib.AbstractContextManager[None]:
    """Be the only controller on this machine that writes the weights of the service."""
    if settings.mode is not Mode.ENFORCE:
        return contextlib.nullcontext()
    file = LeaseFile.of(settings)
    if file is None:
        log.warning(
            "no lease.path is configured: if this controller is killed while load is shifted, "
            "its weights stay in force"
        )
        return contextlib.nullcontext()
    return file.sole_writer()


class Ticking(Protocol):
    """What does its work once an interval."""

    async def tick(self, interval_s: float) -> None:
        """Do that of the last ``interval_s`` seconds; raises nothing."""


class Suspicious(Protocol):
    """What may be worth a look before the interval is over."""

    def has_young_suspicion(self) -> bool:
        """Whether the last tick left something to look at again soon."""

    def has_news_of_it(self) -> bool:
        """Whether enough came in since for that look to say anything."""


_LOOKS_LEFT = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
"""When to look again: the parts of an interval that are left before its end.  In the first half a
backend has answered too little; a later look would leave too little for the tick at the end."""


async def tick_until(
    stop: asyncio.Event,
    reader: asyncio.Task[None],
    ticking: Ticking,
    interval_s: float,
    clock: Clock,
    *,
    suspicious: Suspicious | None = None,
) -> None:
    """Tick on time until told to stop.

    Deadlines are absolute, so that a slow tick does not push all later ones; one that
    lasted longer than an interval skips the deadlines it missed.

    Parameters
    ----------
    stop : ends it.
    reader : of the log; it never ends by itself.
    ticking : does the work.
    interval_s : between deadlines.
    clock : tells the time.
    suspicious : asked after a tick on time whether to tick once more before the next deadline, and
        from half of that interval on whether there is anything new to see.
    """
    stopping = asyncio.create_task(stop.wait())
    last_s = clock.monotonic_s()
    due_s = last_s + interval_s
    looks_s: deque[float] = deque()
    try:
        while True:
            next_s = looks_s.popleft() if looks_s else due_s
            timeout_s = max(0.0, next_s - clock.monotonic_s())
            await asyncio.wait(
                (stopping, reader), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if stopping.done():
                return
            if reader.done():
                # Without its log the controller is blind; a supervisor starts it anew.
                reader.result()
                raise BalancerError("the log reader ended by itself")
            on_time = next_s == due_s
            if suspicious is not None and not on_time:
                # After a pause of the whole process it is time for the tick itself.
                late = clock.monotonic_s() >= due_s
                if late or not suspicious.has_news_of_it():
                    continue
            now_s = clock.monotonic_s()
            await ticking.tick(now_s - last_s)
            last_s, done_s = now_s, clock.monotonic_s()
            looks_s.clear()
            if on_time:
                due_s += interval_s * max(1, math.ceil((done_s - due_s) / interval_s))
                first_s = due_s - _LOOKS_LEFT[0] * interval_s
                if suspicious is not None and done_s < first_s and suspicious.has_young_suspicion():
                    looks_s.extend(due_s - left * interval_s for left in _LOOKS_LEFT)
    finally:
        stopping.cancel()


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


@contextlib.asynccontextmanager
async def closing(adapter: Adapter) -> AsyncIterator[None]:
    """Give back the adapter's sockets in the end."""
    try:
        yield
    finally:
        await adapter.aclose()
