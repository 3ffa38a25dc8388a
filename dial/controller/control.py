"""What the controller does once an interval: read, observe, step, record, apply, publish.

The request path is never touched: whatever fails here, the balancer goes on with the weights
it has.

A tick that cannot read the balancer makes no plan: its windows and samples are let go
(they describe an interval nobody can place), the trouble is shown, and the next tick
tries again.

While an operator has frozen the weights (:mod:`dial.intake.orders`) nothing is written, whatever
the state asks for, but the lease is renewed: a frozen controller is there, so its watchdog has
nothing to put back.  It ends as always, with the configured weights.

Weights of its own are written under a lease (:mod:`dial.lease`), renewed in every tick that
has read the balancer.  After a start, and after a time without ticks that was long enough
for the lease to expire (a hung process that runs again, a machine that slept, a balancer
that was away), the controller begins from what is in force now: weights that somebody has
put back meanwhile are not written again without new evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from dial.adapter import Adapter
from dial.clock import Clock
from dial.controller.baseline import Baselines
from dial.controller.checkpoint import Checkpoints, as_in_force, in_force, without_shift
from dial.controller.policy import Policy, PolicySource
from dial.controller.recording import Recorder
from dial.controller.snapshot import Publisher
from dial.controller.state import State
from dial.controller.step import step
from dial.errors import BalancerError, DialError, SettingError
from dial.handover import Handover
from dial.intake.inbox import SampleInbox
from dial.intake.orders import OrderBook
from dial.lease import LeaseHolder, Moment
from dial.metrics import Metrics
from dial.settings import Settings
from dial.telemetry import Observer, RequestWindows
from dial.tracing import NoTraces, Tracer, describe_plan, describe_write
from dial.types import ApplyReport, BalancerState, Mode, Observation, Plan

log = structlog.get_logger("dial.controller")

_FEW_BACKENDS = 32
"""Of many one is always slow by chance: of so many in every second interval."""

_YOUNG_INTERVALS = 4
"""By then a neighbour worth half the evidence has been found; what is less sure takes its time."""


class Controller:
    """The tick: read, observe, step, record, apply, publish.

    Parameters
    ----------
    settings, source : as configured.
    adapter : the load balancer.
    windows, inbox, orders : filled by the log reader and the service.
    publisher, metrics : what is shown.
    clock : for wall time only; the loop around decides when a tick is due.
    now : the time that leases go by.
    tracer : what makes traces of decisions, if anything does.
    handover : what outlives the controller; files beside ``lease.path`` when not given.
    """

    def __init__(
        self,
        settings: Settings,
        source: PolicySource,
        *,
        adapter: Adapter,
        windows: RequestWindows,
        inbox: SampleInbox,
        orders: OrderBook,
        publisher: Publisher,
        metrics: Metrics,
        clock: Clock,
        now: Callable[[], Moment] = Moment.now,
        tracer: Tracer | None = None,
        handover: Handover | None = None,
    ) -> None:
        self._settings = settings
        self._policy = Policy.of(source)
        self._adapter = adapter
        self._windows = windows
        self._inbox = inbox
        self._orders = orders
        self._publisher = publisher
        self._metrics = metrics
        self._clock = clock
        self._tracer = tracer or NoTraces()
        self._observer = Observer(windows, self._policy.model_checksum)
        self._recorder = Recorder(settings.record, source) if settings.record.path else None
        # In shadow mode nothing is written, so there is nothing to hold or to go on with.
        self._holder: LeaseHolder | None = None
        self._checkpoints: Checkpoints | None = None
        if settings.mode is Mode.ENFORCE:
            handover = handover or Handover.files(settings)
            lease = handover.lease if handover else None
            self._holder = LeaseHolder(settings.service, settings.lease_expires_s, lease, now)
            if handover is not None:
                self._checkpoints = Checkpoints(
                    handover.state, settings, self._policy.model_checksum, now
                )
        self._state = State()
        self._report: ApplyReport | None = None
        self._begun = False

    async def begin(self) -> None:
        """Read the balancer for the first time, and go on from what the last controller left.

        Raises
        ------
        BalancerError
            If it cannot be read: a controller that starts blind is misconfigured.
        SettingError
            If the lease is that of another service.
        """
        if self._holder is not None:
            try:
                self._holder.take_over()
            except SettingError:
                raise
            except DialError as error:
                log.warning("nobody knows which weights in force are DIAL's", error=str(error))
        if self._checkpoints is not None:
            self._state, self._observer.tick = self._checkpoints.load()
        await self._begin_from(await self._adapter.read())
        self._begun = True

    async def _begin_from(self, balancer: BalancerState) -> None:
        """Begin, now or again, from what is in force; what lies before is nobody's interval."""
        self._let_go()
        self._observer.begin(balancer)
        self._inbox.set_backends([server.name for server in balancer.servers])
        self._orders.set_pool(balancer)
        # The state is not what the last tick left, so a replay has to start here.
        self._record(Recorder.close)
        shift = self._state.shift
        if shift is not None and not in_force(shift, balancer):
            if self._holder is not None and self._holder.all_ours(balancer):
                self._state = as_in_force(self._state, shift, balancer)
            else:
                log.info("weights were put back meanwhile; the neighbour has to be found again")
                self._state = without_shift(self._state)
        if self._holder is not None:
            if self._state.shift is None and (ours := self._holder.to_put_back(balancer)):
                await self._unless_frozen(ours, version=self._observer.tick)
            self._renew(self._holder, balancer)

    async def tick(self, interval_s: float) -> None:
        """Do one tick over the last ``interval_s`` seconds; trouble is shown, not raised."""
        with self._metrics.tick_duration.time(), self._tracer.span("dial.tick") as span:
            try:
                with self._tracer.span("dial.read"):
                    balancer = await self._adapter.read()
                lapsed = self._holder is not None and self._holder.lapsed
                if lapsed:
                    await self._begin_from(balancer)
            except BalancerError as error:
                self._metrics.balancer_unreachable.inc()
                self._let_go()
                self._publish(trouble=str(error))
            else:
                if lapsed:
                    self._metrics.lease_lapses.inc()
                    self._publish(trouble=f"begins again: {self._lapse}")
                else:
                    await self._tick(balancer, interval_s)
            shown = self._publisher.current
            span.set("dial.mode", shown.mode.value)
            if shown.trouble:
                span.fail(shown.trouble)
        self._metrics.ticks.inc()

    async def _tick(self, balancer: BalancerState, interval_s: float) -> None:
        self._inbox.set_backends([server.name for server in balancer.servers])
        self._orders.set_pool(balancer)
        now_s = self._clock.now_s()
        samples = self._inbox.take(now_s)
        observation = self._observer.observe(
            balancer, samples, now_s, interval_s, self._orders.now()
        )
        before = self._state
        with self._tracer.span("dial.decide") as span:
            self._state, plan = step(self._policy, before, observation)
            span.set("dial.tick", plan.tick)
            describe_plan(span, plan)
        self._metrics.plans.labels(plan.action).inc()
        self._record(lambda recorder: recorder.tick(before, observation, plan))
        trouble = await self._apply(plan, balancer)
        baselines = Baselines.of(
            self._policy, self._state.backends, interval_s=self._settings.interval_s
        )
        self._publish(observation=observation, plan=plan, baselines=baselines, trouble=trouble)

    def has_young_suspicion(self) -> bool:
        """Whether a backend is slow since a moment ago, and no load has left it yet.

        It is worth another look before the interval is over: slow for an interval may be chance,
        slow for one and a half need not be waited for until it is two.  Not asked of many backends,
        nor in trouble: a tick that found nothing new has made nothing younger.
        """
        backends = self._state.backends
        if self._publisher.current.trouble or len(backends.names) > _FEW_BACKENDS:
            return False
        return bool(self._young_suspects())

    def has_news_of_it(self) -> bool:
        """Whether young suspects have answered enough requests, since the last tick, for a T_x.

        A slow backend answers few: of some forty a second, half an interval has too few as often
        as not, and the look would be in vain.  All of them: who is suspected by chance answers as
        many as ever, and sooner than the one that is slow.
        """
        suspects = self._young_suspects()
        return bool(suspects) and all(self._windows.has_enough(name) for name in suspects)

    def _young_suspects(self) -> list[str]:
        backends = self._state.backends
        since = dict(zip(backends.names, backends.known.uneasy_intervals.tolist(), strict=True))
        return [
            name
            for name in backends.suspects
            if name not in backends.contentions and since[name] <= _YOUNG_INTERVALS
        ]

    async def end(self) -> None:
        """Put the configured weights back if load is shifted, and close the recording.

        Whoever stops the controller gets the balancer as the admin configured it; nobody
        would be there to end the shift when the neighbour leaves.  Who follows the weights is
        told as well.  If the balancer cannot be reached, the lease is left to the watchdog.
        """
        if not self._begun:
            return
        if self._holder is not None:
            try:
                balancer = await self._adapter.read()
                ours = self._holder.to_put_back(balancer)
                if ours:
                    await self._write(ours, version=self._observer.tick + 1)
                    self._publisher.publish(
                        replace(
                            self._publisher.current,
                            at_s=self._clock.now_s(),
                            report=self._report,
                        )
                    )
                    balancer = await self._adapter.read()
                self._holder.renew(balancer, {})
            except (BalancerError, OSError) as error:
                log.error("weights could not be put back", error=str(error))
        if self._checkpoints is not None:
            self._checkpoints.write(without_shift(self._state), self._observer.tick)
        self._record(Recorder.close)
        self._publisher.end()

    def hand_over(self) -> None:
        """End without putting anything back: another controller goes on from here, at once."""
        if not self._begun:
            return
        if self._checkpoints is not None:
            self._checkpoints.write(self._state, self._observer.tick)
        self._record(Recorder.close)

    async def _apply(self, plan: Plan, balancer: BalancerState) -> str | None:
        """Write what differs, in enforce mode; returns the trouble, if any."""
        if self._holder is None:
            return await self._configure(balancer, version=plan.tick)
        if self._holder.lapsed:
            # Stopped since the balancer was read: the next tick begins from what is in force.
            return f"plan not applied: {self._lapse}"
        if self._orders.now().frozen:
            if self._renew(self._holder, balancer):
                return None
            return "frozen, but the lease cannot be renewed: a watchdog takes the weights back"
        trouble, changes = None, dict(plan.changes)
        if not self._renew(self._holder, balancer):
            trouble = "plan not applied: its lease cannot be written"
            changes = self._holder.to_put_back(balancer)
            if changes:
                # Our own doing: the next tick must not take it for somebody else's.
                self._state = without_shift(self._state)
                self._record(Recorder.close)
        elif self._state.shift is None:
            # A server that was out of service during the release still has our weight.
            changes = self._holder.to_put_back(balancer) | changes
        return await self._try_to_write(changes, version=plan.tick) or trouble

    async def _configure(self, balancer: BalancerState, version: int) -> str | None:
        """In shadow mode: configured weights, where the balancer gets its weights from us alone.

        There the configured ones come into force by nobody else, and a shift that an earlier
        controller left would stay for ever.
        """
        if not balancer.meaning.sole_writer:
            return None
        return await self._try_to_write(
            {
                server.name: server.configured_weight
                for server in balancer.servers
                if server.weight != server.configured_weight
            },
            version=version,
        )

    async def _try_to_write(self, changes: dict[str, int], version: int) -> str | None:
        """Write, if there is anything to write; returns the trouble, if any."""
        if not changes:
            return None
        try:
            report = await self._unless_frozen(changes, version=version)
        except BalancerError as error:
            self._metrics.balancer_unreachable.inc()
            return f"plan not applied: {error}"
        return (
            None if report is None or report.ok else f"weights not taken: {dict(report.failures)}"
        )

    @property
    def _lapse(self) -> str:
        assert self._holder is not None  # noqa: S101 - asked of a holder only
        return f"no tick was completed for the lease's {self._holder.expires_s:g} s"

    def _renew(self, holder: LeaseHolder, balancer: BalancerState) -> bool:
        """Keep what the next controller needs, then renew the lease; false if that failed."""
        if self._checkpoints is not None:
            self._checkpoints.keep(self._state, self._observer.tick)
        wanted = self._state.shift.weights if self._state.shift else {}
        usable = {server.name for server in balancer.servers if server.usable}
        try:
            holder.renew(balancer, {n: w for n, w in wanted.items() if n in usable})
        except OSError as error:
            self._metrics.lease_failures.inc()
            log.error("lease not written", error=str(error))
            return False
        return True

    async def _unless_frozen(self, weights: dict[str, int], version: int) -> ApplyReport | None:
        """Write, unless frozen, even since the tick began: who freezes waits for this to end."""
        async with self._orders.writing:
            if self._orders.now().frozen:
                return None
            return await self._write(weights, version=version)

    async def _write(self, weights: dict[str, int], version: int) -> ApplyReport:
        with self._tracer.span("dial.apply") as span:
            report = await self._adapter.apply(weights, version=version)
            describe_write(span, report)
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
        self._observer.forget()
        self._inbox.take(self._clock.now_s())

    def _publish(
        self,
        *,
        observation: Observation | None = None,
        plan: Plan | None = None,
        baselines: Baselines | None = None,
        trouble: str | None = None,
    ) -> None:
        if trouble:
            log.warning("tick in trouble", trouble=trouble)
        orders = self._orders.now()
        self._publisher.publish(
            replace(
                self._publisher.current,
                mode=Mode.FROZEN if orders.frozen else self._settings.mode,
                orders=orders,
                at_s=self._clock.now_s(),
                observation=observation,
                plan=plan,
                report=self._report,
                trouble=trouble,
                baselines=baselines,
            )
        )
