"""The runtime: the only place that schedules, sleeps or talks to anything.

One process, one event loop, three tasks: the log reader fills windows, the HTTP service
fills the inbox, and the tick loop empties both, asks ``step``, and applies the plan.  The
request path is never touched: whatever dies here, the balancer goes on with the weights
it has.

A tick that cannot read the balancer makes no plan: its windows and samples are let go
(they describe an interval nobody can place), the trouble is shown, and the next tick
tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import structlog

from dial.adapter import Adapter, load_adapter
from dial.clock import Clock, SystemClock
from dial.controller.policy import Policy, PolicySource
from dial.controller.recording import Recorder
from dial.controller.snapshot import Publisher, Snapshot
from dial.controller.state import State
from dial.controller.step import step
from dial.errors import BalancerError
from dial.intake.inbox import SampleInbox
from dial.metrics import Metrics
from dial.model import load_model, model_path
from dial.service.app import create_app
from dial.service.server import serve
from dial.service.token import load_token
from dial.settings import Settings
from dial.telemetry import Observer, RequestWindows
from dial.types import ApplyReport, BalancerState, Mode, Observation, Plan

log = structlog.get_logger("dial.controller")


class Controller:
    """The tick: read, observe, step, record, apply, publish.

    Parameters
    ----------
    settings, source : as configured.
    adapter : the load balancer.
    windows, inbox : filled by the log reader and the service.
    publisher, metrics : what is shown.
    clock : for wall time only; the loop around decides when a tick is due.
    """

    def __init__(
        self,
        settings: Settings,
        source: PolicySource,
        *,
        adapter: Adapter,
        windows: RequestWindows,
        inbox: SampleInbox,
        publisher: Publisher,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._policy = Policy.of(source)
        self._adapter = adapter
        self._windows = windows
        self._inbox = inbox
        self._publisher = publisher
        self._metrics = metrics
        self._clock = clock
        self._observer = Observer(windows, self._policy.model_checksum)
        self._recorder = Recorder(settings.record, source) if settings.record.path else None
        self._state = State()
        self._report: ApplyReport | None = None

    async def begin(self) -> None:
        """Read the balancer for the first time: what lies before is nobody's interval.

        Raises
        ------
        BalancerError
            If it cannot be read: a controller that starts blind is misconfigured.
        """
        balancer = await self._adapter.read()
        self._let_go()
        self._observer.begin(balancer)
        self._inbox.set_backends([server.name for server in balancer.servers])

    async def tick(self, interval_s: float) -> None:
        """Do one tick over the last ``interval_s`` seconds; trouble is shown, not raised."""
        with self._metrics.tick_duration.time():
            try:
                balancer = await self._adapter.read()
            except BalancerError as error:
                self._metrics.balancer_unreachable.inc()
                self._let_go()
                self._publish(trouble=str(error))
            else:
                await self._tick(balancer, interval_s)
        self._metrics.ticks.inc()

    async def _tick(self, balancer: BalancerState, interval_s: float) -> None:
        self._inbox.set_backends([server.name for server in balancer.servers])
        now_s = self._clock.now_s()
        samples = self._inbox.take(now_s)
        observation = self._observer.observe(balancer, samples, now_s, interval_s)
        before = self._state
        self._state, plan = step(self._policy, before, observation)
        self._metrics.plans.labels(plan.action).inc()
        self._record(lambda recorder: recorder.tick(before, observation, plan))
        trouble = await self._apply(plan)
        self._publish(observation=observation, plan=plan, trouble=trouble)

    async def end(self) -> None:
        """Put the configured weights back if load is shifted, and close the recording.

        Whoever stops the controller gets the balancer as the admin configured it; nobody
        would be there to end the shift when the neighbour leaves.
        """
        if self._state.shift is not None and self._settings.mode is Mode.ENFORCE:
            try:
                balancer = await self._adapter.read()
                configured = {s.name: s.configured_weight for s in balancer.servers if s.usable}
                await self._write(configured, version=self._observer.tick + 1)
            except BalancerError as error:
                log.error("weights could not be put back", error=str(error))
        self._record(Recorder.close)

    async def _apply(self, plan: Plan) -> str | None:
        """Write what differs, in enforce mode; returns the trouble, if any."""
        if not plan.changes or self._settings.mode is not Mode.ENFORCE:
            return None
        try:
            report = await self._write(dict(plan.changes), version=plan.tick)
        except BalancerError as error:
            self._metrics.balancer_unreachable.inc()
            return f"plan not applied: {error}"
        return None if report.ok else f"weights not taken: {dict(report.failures)}"

    async def _write(self, weights: dict[str, int], version: int) -> ApplyReport:
        report = await self._adapter.apply(weights, version=version)
        self._report = report
        self._record(lambda recorder: recorder.applied(report))
        in_effect = dict(report.in_effect)
        for name, weight in report.wanted:
            result = "ok" if in_effect.get(name) == weight else "failed"
            self._metrics.weight_writes.labels(result).inc()
        log.info("weights written", version=version, in_effect=in_effect, ok=report.ok)
        return report

    def _record(self, write: Callable[[Recorder], None]) -> None:
        """Write to the recording; a full disk ends the recording, never the control."""
        if self._recorder is None:
            return
        try:
            write(self._recorder)
        except OSError as error:
            self._recorder = None
            log.error("recording ended", path=str(self._settings.record.path), error=str(error))

    def _let_go(self) -> None:
        """Forget what came in since the last tick: nobody can place it any more."""
        self._windows.clear()
        self._inbox.take(self._clock.now_s())

    def _publish(
        self,
        *,
        observation: Observation | None = None,
        plan: Plan | None = None,
        trouble: str | None = None,
    ) -> None:
        if trouble:
            log.warning("tick in trouble", trouble=trouble)
        self._publisher.publish(
            replace(
                self._publisher.current,
                at_s=self._clock.now_s(),
                observation=observation,
                plan=plan,
                report=self._report,
                trouble=trouble,
            )
        )


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
    source = PolicySource.of(settings, load_model(model_path(settings.model)))
    token = load_token(settings.api)
    adapter = load_adapter(settings.adapter.name)(settings.service, settings.adapter.options)
    windows = RequestWindows(settings.percentile, settings.guards.min_requests)
    inbox = SampleInbox()
    metrics = Metrics()
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
        publisher=publisher,
        metrics=metrics,
        clock=clock,
    )
    app = create_app(
        settings, publisher=publisher, inbox=inbox, metrics=metrics, clock=clock, token=token
    )
    stop = _stop_on_signals()
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
            log.info("stopped")


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
