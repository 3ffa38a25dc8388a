"""The reader: beside each balancer, so that its log goes no further than it must.

Once an interval it reads the balancer, closes the interval's windows and publishes both.  It
applies the plan that the leading controller has written, and says what became of it.

The lease lies where the plan does.  While the leader renews it, weights stand; when nobody has for
its time, whoever's fault that is (all controllers gone, the servers away, this machine cut off),
the reader puts the configured weights back by itself, as ``dial watchdog`` does on one machine.
With ``lease.path`` a file says here as well whose the weights are, and the watchdog looks after the
reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter

import structlog
from nats.errors import Error
from nats.js.kv import KeyValue
from pydantic import ValidationError

from dial import subjects
from dial.adapter import Adapter, load_adapter
from dial.clock import Clock, SystemClock
from dial.controller.runtime import closing, stop_on_signals, tick_until
from dial.errors import BalancerError
from dial.fleet.handover import LEASE
from dial.fleet.link import Link, connect
from dial.fleet.plans import Applied, PlanDocument
from dial.fleet.sketch import SketchedWindows
from dial.fleet.windows import Lines, encode
from dial.lease import LeaseFile, LeaseHolder, Moment
from dial.settings import Settings
from dial.types import ApplyReport, BalancerState, Mode

_WATCH_S = 5.0
"""Without news after which the store is asked again."""

log = structlog.get_logger("dial.fleet")


class Reader:
    """One balancer of the fleet.

    Parameters
    ----------
    settings : service, mode, interval and lease.
    adapter : the load balancer.
    link : to the servers.
    clock : wall time for people, monotonic time for what expires.

    Attributes
    ----------
    published
        Intervals that were published.
    """

    def __init__(self, settings: Settings, adapter: Adapter, link: Link, clock: Clock) -> None:
        self._settings = settings
        self._adapter = adapter
        self._link = link
        self._clock = clock
        self._windows = SketchedWindows()
        self._lines = Counter[str]()
        self._life = clock.now_s()
        self._turn = asyncio.Lock()
        self._holder = LeaseHolder(
            settings.service, settings.lease_expires_s, LeaseFile.of(settings)
        )
        self._plan: tuple[int, PlanDocument] | None = None
        self._applied: PlanDocument | None = None
        self._wanted: dict[str, int] = {}
        self._version = 0
        self._stands_until_s = -math.inf
        self._trouble = ""
        self.published = 0

    async def begin(self) -> None:
        """Read the balancer for the first time, and know what an earlier reader has written.

        Raises
        ------
        DialError
            If the balancer cannot be read, or the lease's file is another's.
        """
        self._holder.take_over()
        await self._adapter.read()

    async def read_log(self) -> None:
        """Sum up the log until the adapter is closed."""
        async for batch in self._adapter.requests():
            self._windows.add(batch)
            self._lines["malformed"] += batch.malformed
            self._lines["unattributed"] += batch.unattributed
            self._lines["dropped"] += batch.dropped

    async def tick(self, interval_s: float) -> None:  # noqa: ARG002 - windows carry counts
        """Publish one interval; put back what nobody stands by.  Trouble is shown, not raised."""
        try:
            async with self._turn:
                balancer = await self._adapter.read()
                if self._settings.mode is Mode.ENFORCE:
                    await self._renew_or_put_back(balancer)
                # Before the next plan is applied: what it says of one must not come after that.
                await self._publish(balancer)
        except (BalancerError, OSError) as error:
            # What was logged meanwhile describes an interval that nobody can place.
            self._windows = SketchedWindows()
            self._lines.clear()
            self._say(str(error))
            return
        self._say("")

    async def _publish(self, balancer: BalancerState) -> None:
        names = tuple(server.name for server in balancer.servers)
        windows, lines = self._windows.close(names), Lines(**self._lines)
        self._lines.clear()
        self.published += 1
        subject = subjects.windows(self._settings.service, self._link.name)
        for message in encode(
            balancer,
            windows,
            lines,
            reader=self._link.name,
            life=self._life,
            seq=self.published,
        ):
            await self._link.publish(subject, message)

    # ------------------------------------------------------------ plans

    async def follow(self) -> None:
        """Take in plan and lease as they are written, for ever."""
        prefix = subjects.token(self._settings.service)
        while True:
            with contextlib.suppress(Error, OSError):
                watcher = await self._link.documents.watch(f"{prefix}.*")
                try:
                    while True:
                        entry = await watcher.updates(_WATCH_S)  # type: ignore[no-untyped-call]
                        if entry is not None:
                            await self.take(entry.key.removeprefix(f"{prefix}."), entry)
                except TimeoutError:
                    # Nothing new, or a watch that did not outlive its server: begun again, it
                    # tells what is newest, and what is known already changes nothing.
                    continue
                finally:
                    await watcher.stop()  # type: ignore[no-untyped-call]
            await asyncio.sleep(self._settings.interval_s)

    async def take(self, name: str, entry: KeyValue.Entry) -> None:
        """Take in one document."""
        content = entry.value or b""
        try:
            if name == "lease":
                self._take_lease(content)
            elif name == "plan" and content:
                self._plan = (entry.revision or 0, PlanDocument.model_validate_json(content))
        except ValidationError:
            log.warning("not read", document=name, revision=entry.revision)
            return
        await self._apply_newest()

    def _take_lease(self, content: bytes) -> None:
        lease = LEASE.validate_json(content) if content else None
        if lease is None:
            self._stands_until_s = -math.inf
            return
        # By the wall clocks of two machines: a lease that is found in the store may be old.
        age_s = lease.renewed.age_s(fleet_now(self._clock))
        if age_s <= lease.expires_s:
            self._stands_until_s = self._clock.monotonic_s() + lease.expires_s - age_s

    async def _apply_newest(self) -> None:
        if self._plan is None or self._settings.mode is not Mode.ENFORCE:
            return
        revision, plan = self._plan
        if plan == self._applied:
            return  # Told again, or taken over by another leader, and not decided anew.
        if self._clock.monotonic_s() > self._stands_until_s:
            return  # Nobody stands by it (any more).
        self._applied = plan
        in_effect: dict[str, int] = {}
        try:
            async with self._turn:
                report = await self._apply(plan, revision)
        except (BalancerError, OSError) as error:
            failures = dict.fromkeys(plan.weights, str(error)[:1024])
        else:
            failures, in_effect = dict(report.failures), dict(report.in_effect)
        answer = Applied(
            reader=self._link.name,
            revision=revision,
            at_s=self._clock.now_s(),
            in_effect=in_effect,
            failures=failures,
        )
        await self._link.publish(
            subjects.applied(self._settings.service, self._link.name),
            answer.model_dump_json().encode(),
        )

    async def _apply(self, plan: PlanDocument, revision: int) -> ApplyReport:
        balancer = await self._adapter.read()
        usable = {server.name for server in balancer.servers if server.usable}
        wanted = {name: weight for name, weight in plan.weights.items() if name in usable}
        # A plan in between may have been missed: what it put back is not named any more.
        wanted = self._holder.to_put_back(balancer) | wanted
        self._holder.renew(balancer, wanted)
        self._wanted, self._version = wanted, max(self._version + 1, revision)
        in_force = {server.name: server.weight for server in balancer.servers}
        changes = {name: weight for name, weight in wanted.items() if in_force[name] != weight}
        if not changes:
            return ApplyReport(self._version, self._clock.now_s(), (), tuple(wanted.items()))
        report = await self._adapter.apply(changes, version=self._version)
        log.info("plan applied", revision=revision, leader=plan.leader, ok=report.ok)
        same = tuple((name, weight) for name, weight in wanted.items() if name not in changes)
        return ApplyReport(
            report.version,
            report.at_s,
            report.wanted + same,
            report.in_effect + same,
            report.failures,
        )

    async def _renew_or_put_back(self, balancer: BalancerState) -> None:
        """Keep the file of the lease as new as the one in the store, or end both."""
        if self._clock.monotonic_s() <= self._stands_until_s:
            self._holder.renew(balancer, self._wanted)
            return
        self._wanted = {}
        if ours := self._holder.to_put_back(balancer):
            log.warning("nobody stands by the plan any more: configured weights put back")
            self._version += 1
            await self._adapter.apply(ours, version=self._version)
            balancer = await self._adapter.read()
        self._holder.renew(balancer, {})

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.error("balancer not read", error=trouble)
        self._trouble = trouble


def fleet_now(clock: Clock) -> Moment:
    """The time that members of a fleet share: wall clocks, which the samples' ages need as well."""
    return Moment("fleet", clock.now_s())


async def run(settings: Settings, clock: Clock | None = None) -> None:
    """Run a reader until SIGTERM or SIGINT.

    Raises
    ------
    DialError
        If it cannot start.  Once it runs, trouble is shown and retried, never raised.
    """
    clock = clock or SystemClock()
    adapter = load_adapter(settings.adapter.name)(settings.service, settings.adapter.options)
    stop = stop_on_signals()
    link = await connect(settings.fleet, Counter())
    reader = Reader(settings, adapter, link, clock)
    async with closing(adapter):
        tasks = [asyncio.create_task(reader.read_log(), name="log reader")]
        try:
            await reader.begin()
            log.info("reads", service=settings.service, reader=link.name, mode=settings.mode)
            tasks.append(asyncio.create_task(reader.follow(), name="plans"))
            await tick_until(stop, tasks[0], reader, settings.interval_s, clock)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await link.aclose()
            log.info("stopped")
