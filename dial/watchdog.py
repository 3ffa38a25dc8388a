"""The watchdog: puts the configured weights back when nobody renews the lease any more.

A process of its own beside the balancer, because whatever ends or stops the controller must
not end or stop this.  It looks at the lease once a second, and talks to the balancer only when
a lease has expired.  It needs the adapter's ``read`` and ``apply`` alone, so that it works with
any balancer.

It never argues: only a weight in force that the lease names is put back.  If the controller
comes back while it looks, the lease is new and the watchdog leaves it alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from dial.adapter import Adapter
from dial.errors import DialError
from dial.lease import Lease, LeaseFile, Moment

PERIOD_S = 1.0
"""Between two looks: what is added to the lease's own time."""

log = structlog.get_logger("dial.watchdog")


class Watchdog:
    """Looks after the lease of one service.

    Parameters
    ----------
    file : where the controller writes it.
    adapter : the load balancer.
    now : the time.
    """

    def __init__(
        self, file: LeaseFile, adapter: Adapter, now: Callable[[], Moment] = Moment.now
    ) -> None:
        self._file = file
        self._adapter = adapter
        self._now = now
        self._writes = 0
        self._trouble = ""

    async def look(self) -> None:
        """Look once; trouble is logged when it begins, and the next look tries again."""
        try:
            await self._look()
        except (DialError, OSError) as error:
            if str(error) != self._trouble:
                log.error("cannot do its work", error=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""

    async def _look(self) -> None:
        lease = self._file.read()
        if lease is None or not lease.expired(self._now()):
            return
        try:
            await self._put_back(lease)
        finally:
            # A balancer that comes to the adapter is to find the next controller there, not us.
            await self._adapter.aclose()

    async def _put_back(self, lease: Lease) -> None:
        weights = lease.to_put_back(await self._adapter.read())
        if self._file.read() != lease:
            return
        if weights:
            self._writes += 1
            report = await self._adapter.apply(weights, version=self._writes)
            log.warning(
                "the controller is gone or hangs: configured weights put back",
                pid=lease.pid,
                silent_s=round(lease.renewed.age_s(self._now()), 1),
                in_effect=dict(report.in_effect),
            )
            if not report.ok:
                raise DialError(f"weights not taken: {dict(report.failures)}")
        else:
            log.info(
                "the controller is gone or hangs: no weight in force is its own", pid=lease.pid
            )
        if self._file.read() == lease:
            self._file.remove()


async def watch(watchdog: Watchdog, stop: asyncio.Event) -> None:
    """Look every :data:`PERIOD_S` until told to stop."""
    while not stop.is_set():
        await watchdog.look()
        try:
            await asyncio.wait_for(stop.wait(), PERIOD_S)
        except TimeoutError:
            continue
