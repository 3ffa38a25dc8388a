"""The weights as a feed that plugins inside a balancer can follow: ``GET /v1/weights``.

A balancer that is written to needs none of this.  One that can only ask (a plugin in a broker, a
client-side balancer) asks here, by long poll: an answer comes when there are other weights than the
version it has, or when some time is over, and then says that those it has still hold.

What is served is what the controller holds to be in force, in shadow mode too, where it is what the
balancer is configured with.  A document holds for ``valid_s``, as long as the lease of weights that
are written: whoever hears nothing for so long goes back to its own configuration.  It is stood by
with each tick that has read the balancer, and by nothing else.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import BaseModel

from dial.controller.snapshot import Publisher, Snapshot
from dial.errors import IntakeError
from dial.settings import Settings

MAX_WAIT_S = 5.0
"""Longest wait for one answer: a follower that hears nothing for twice as long may give up."""

MAX_WAITING = 256
"""Followers that are kept waiting; any more are answered at once, and poll."""


class WeightDocument(BaseModel):
    """Weights in force, and for how long."""

    format: Literal[1] = 1
    service: str
    version: int
    """Grows with each change: microseconds since the epoch, and more than any before."""
    at_s: float
    """When the controller last stood by them, seconds since the epoch."""
    valid_s: float
    """For how long they hold from then on."""
    weights: dict[str, int]
    """By name of the backend, in the adapter's own meaning."""


class WeightFeed:
    """Turns snapshots into versioned documents.

    Parameters
    ----------
    publisher : where snapshots are.
    settings : the service's name, and how long a lease lasts.
    """

    def __init__(self, publisher: Publisher, settings: Settings) -> None:
        self._publisher = publisher
        self._settings = settings
        self._seen: Snapshot | None = None
        self._last: WeightDocument | None = None
        self._waiting = 0

    def current(self) -> WeightDocument:
        """The weights now.

        Raises
        ------
        IntakeError
            ``not_ready`` before a tick has read the balancer.
        """
        snapshot = self._publisher.current
        if snapshot is not self._seen:
            self._last = self._after(snapshot, self._last)
            self._seen = snapshot
        if self._last is None:
            raise IntakeError(
                "not_ready", "no tick has read the load balancer yet; ask again in a few seconds"
            )
        return self._last

    def _after(self, snapshot: Snapshot, last: WeightDocument | None) -> WeightDocument | None:
        """The document that follows the last one, which may be the same."""
        observation, report = snapshot.observation, snapshot.report
        if observation is not None:
            at_s = observation.now_s
            weights = {b.name: b.server.weight for b in observation.backends}
        elif last is not None:
            at_s, weights = last.at_s, dict(last.weights)
        else:
            return None
        if report is not None and report.at_s >= at_s:
            weights |= dict(report.in_effect)
        if last is not None and weights == last.weights:
            version = last.version
        else:
            version = max(int(snapshot.at_s * 1e6), last.version + 1 if last else 0)
        return WeightDocument(
            service=snapshot.service,
            version=version,
            at_s=at_s,
            valid_s=self._settings.lease_expires_s,
            weights=weights,
        )

    async def newer_than(self, version: int) -> WeightDocument:
        """The weights as soon as they are newer; after a third of their time, or 5 s, in any case.

        At once where the controller ends, or too many wait already.

        Raises
        ------
        IntakeError
            ``not_ready`` before a tick has read the balancer.
        """
        if self._waiting >= MAX_WAITING:
            return self.current()
        self._waiting += 1
        try:
            async with asyncio.timeout(min(self._settings.lease_expires_s / 3.0, MAX_WAIT_S)):
                while self.current().version <= version and not self._publisher.ended:
                    await self._publisher.next()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1
        return self.current()
