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
from collections.abc import AsyncIterator

import structlog

from dial.adapter import Adapter, load_adapter
from dial.clock import Clock, SystemClock
from dial.controller.control import Controller
from dial.controller.policy import PolicySource
from dial.controller.snapshot import Publisher, Snapshot
from dial.errors import BalancerError
from dial.intake.inbox import SampleInbox
from dial.intake.orders import OrderBook
from dial.lease import LeaseFile
from dial.metrics import Metrics
from dial.model import load_model, model_path
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.server import serve
from dial.service.token import Tokens
from dial.settings import Settings
from dial.telemetry import RequestWindows
from dial.tracing import open_tracer
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
    model = load_model(model_path(settings.model))
    source = PolicySource.of(settings, model)
    tokens = Tokens.load(settings.api)
    tracer = open_tracer(settings)
    adapter = load_adapter(settings.adapter.name)(settings.service, settings.adapter.options)
    windows = RequestWindows(settings.percentile, settings.guards.min_requests)
    inbox = SampleInbox()
    orders = OrderBook(settings, clock)
    metrics = Metrics()
    metrics.watch(adapter)
    started_s = clock.now_s()
    publisher = Publisher(
        Snapshot(settings.service, settings.adapter.name, settings.mode, started_s, started_s)
    )
    controller = Controller(
        settings,
        source,
        adapter=adapter,
        windows=windows,
        inbox=inbox,
        orders=orders,
        publisher=publisher,
        metrics=metrics,
        clock=clock,
        tracer=tracer,
    )
    app = create_app(
        Parts(
            settings,
            model,
            publisher=publisher,
            inbox=inbox,
            orders=orders,
            metrics=metrics,
            clock=clock,
            tokens=tokens,
        )
    )
    stop = _stop_on_signals()
    with _sole_writer(settings):
        async with _closing(adapter), serve(app, settings.api) as port:
            reader = asyncio.create_task(read_log(adapter, windows, metrics), name="log reader")
            log.info("started", service=settings.service, mode=settings.mode, port=port)
            try:
                await controller.begin()
                await _tick_until(stop, reader, controller, settings.interval_s, clock)
            finally:
                await controller.end()
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)
                tracer.close()
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


async def _tick_until(
    stop: asyncio.Event,
    reader: asyncio.Task[None],
    controller: Controller,
    interval_s: float,
    clock: Clock,
) -> None:
    """Tick on time until told to stop.

    Deadlines are absolute, so that a slow tick does not push all later ones; one that
    lasted longer than an interval skips the deadlines it missed.
    """
    stopping = asyncio.create_task(stop.wait())
    last_s = clock.monotonic_s()
    due_s = last_s + interval_s
    try:
        while True:
            timeout_s = max(0.0, due_s - clock.monotonic_s())
            await asyncio.wait(
                (stopping, reader), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if stopping.done():
                return
            if reader.done():
                # Without its log the controller is blind; a supervisor starts it anew.
                reader.result()
                raise BalancerError("the log reader ended by itself")
            now_s = clock.monotonic_s()
            await controller.tick(now_s - last_s)
            last_s = now_s
            due_s += interval_s * max(1, math.ceil((clock.monotonic_s() - due_s) / interval_s))
    finally:
        stopping.cancel()


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


@contextlib.asynccontextmanager
async def _closing(adapter: Adapter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await adapter.aclose()
