"""A controller of the group: it stands by until it leads the service, then ticks as any does.

Standing by, it listens to the readers already, so that its first tick is not blind.  When it leads
it takes plan, lease, orders and state in the store, which ends the writing of whoever led before;
begins from the state; and ticks.  Leading no longer, whatever the reason, it puts nothing back and
writes nothing: another one goes on from what it has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from nats.errors import Error

from dial import subjects
from dial.clock import Clock, SystemClock
from dial.controller.assembly import Assembly
from dial.controller.control import Controller
from dial.controller.runtime import closing, read_log, stop_on_signals, tick_until
from dial.errors import BalancerError, Deposed, IntakeError
from dial.fleet.balancer import FleetBalancer
from dial.fleet.election import Election
from dial.fleet.handover import StoredHandover
from dial.fleet.link import Link, connect
from dial.fleet.reader import fleet_now
from dial.intake.samples import decode_batch
from dial.service.server import serve
from dial.settings import Settings

log = structlog.get_logger("dial.fleet")

RESIGN_S = 2.0
"""For what is left to do at the end."""


class Member:
    """One controller of the group.

    Parameters
    ----------
    settings : as configured.
    link : to the servers.
    clock : wall and monotonic time.
    """

    def __init__(self, settings: Settings, link: Link, clock: Clock) -> None:
        self.balancer = FleetBalancer(link, settings, clock)
        self.parts = Assembly.of(settings, self.balancer, clock)
        self.parts.orders.stand_by()
        self._settings = settings
        self._link = link
        self._clock = clock

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by and lead, in turns, until told to stop.

        Raises
        ------
        DialError
            If a setting cannot be used; all else is shown and retried.
        """
        await self.balancer.listen()
        bucket = self._link.leaders
        election = Election(
            bucket,
            (await bucket.status()).ttl or self._settings.fleet.leader_ttl_s,
            service=self._settings.service,
            name=self._link.name,
            clock=self._clock,
        )
        while not stop.is_set():
            async with _background(self._show_standing_by(election)):
                term = await _unless(stop, election.win())
            if term is None:
                break
            log.info("leads", service=self._settings.service, term=term)
            try:
                async with _ending(stop, election.hold()) as ended:
                    await self._lead(term, ended)
            except (BalancerError, Error, OSError) as error:
                log.warning("leads no longer", error=str(error))
            finally:
                async with _patience():
                    await election.resign()
        self.parts.publisher.end()

    async def _lead(self, term: int, ended: asyncio.Event) -> None:
        parts = self.parts
        handover = await StoredHandover.take(self._link, self._settings.service, term)
        parts.orders.take_over(handover.documents.orders)
        await self.balancer.lead(term)
        self.balancer.before_plans = handover.flush
        controller = parts.controller(handover.documents, partial(fleet_now, self._clock))
        unsubscribe = await self._link.subscribe(
            subjects.all_samples(self._settings.service), self._take_samples
        )
        reading = asyncio.create_task(
            read_log(self.balancer, parts.windows, parts.metrics), name="windows"
        )
        try:
            async with (
                _background(self._announce(term)),
                _ending(ended, handover.keep_flushing()) as deposed,
            ):
                if await self._begin(controller, deposed):
                    await tick_until(
                        deposed, reading, controller, self._settings.interval_s, self._clock
                    )
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            async with _patience():
                await unsubscribe()
                controller.hand_over()
                await handover.flush()
            self.balancer.follow()
            parts.orders.stand_by()

    async def _begin(self, controller: Controller, ended: asyncio.Event) -> bool:
        """Begin as soon as a reader is heard; false if told to end before that."""
        while not ended.is_set():
            try:
                await controller.begin()
            except Deposed:
                raise
            except BalancerError as error:
                self._show(str(error))
            else:
                return True
        return False

    def _take_samples(self, content: bytes) -> None:
        metrics = self.parts.metrics
        try:
            receipt = self.parts.inbox.offer(decode_batch(content), self._clock.now_s())
        except IntakeError as error:
            metrics.sample_batches_refused.labels(error.reason).inc()
        else:
            metrics.count_receipt(receipt)

    async def _announce(self, term: int) -> None:
        """Say what each tick has decided, to whoever looks on."""
        publisher = self.parts.publisher
        subject = subjects.ticks(self._settings.service)
        while True:
            await publisher.next()
            shown = publisher.current
            if shown.plan is None:
                continue
            told = {
                "format": 1,
                "term": term,
                "leader": self._link.name,
                "tick": shown.plan.tick,
                "at_s": shown.at_s,
                "action": shown.plan.action.value,
                "reason": shown.plan.reason,
                "changes": dict(shown.plan.changes),
            }
            await self._link.publish(subject, json.dumps(told).encode())

    async def _show_standing_by(self, election: Election) -> None:
        while True:
            leads = f": {election.leader} leads" if election.leader else ""
            self._show(f"stands by{leads}")
            await asyncio.sleep(self._settings.interval_s)

    def _show(self, trouble: str) -> None:
        publisher = self.parts.publisher
        if publisher.current.trouble != trouble:
            publisher.publish(
                replace(
                    publisher.current,
                    at_s=self._clock.now_s(),
                    observation=None,
                    plan=None,
                    trouble=trouble,
                )
            )


async def run(settings: Settings, clock: Clock | None = None) -> None:
    """Run a controller of the group until SIGTERM or SIGINT.

    Raises
    ------
    DialError
        If it cannot start: settings, model or servers.
    """
    clock = clock or SystemClock()
    stop = stop_on_signals()
    link = await connect(settings.fleet, Counter())
    try:
        member = Member(settings, link, clock)
        async with (
            closing(member.balancer),
            serve(member.parts.app(), settings.api) as port,
        ):
            log.info("started", service=settings.service, member=link.name, port=port)
            await member.run(stop)
    finally:
        async with _patience():
            await link.aclose()
        log.info("stopped")


@contextlib.asynccontextmanager
async def _background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _ending(
    outer: asyncio.Event, work: Coroutine[Any, Any, None]
) -> AsyncIterator[asyncio.Event]:
    """An event that is set when ``outer`` is, or when ``work`` ends, however it does."""
    ended = asyncio.Event()

    async def wait() -> None:
        working = asyncio.create_task(work)
        waiting = asyncio.create_task(outer.wait())
        try:
            await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.set()
            working.cancel()
            waiting.cancel()
            await asyncio.gather(working, waiting, return_exceptions=True)

    async with _background(wait()):
        yield ended


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, int]) -> int | None:
    """What ``work`` returns, or ``None`` if told to stop before that."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


@contextlib.asynccontextmanager
async def _patience() -> AsyncIterator[None]:
    """For the last words: what cannot be said in time, or at all, is not."""
    try:
        async with asyncio.timeout(RESIGN_S):
            yield
    except (BalancerError, Error, OSError) as error:
        log.info("ends without", error=str(error))
