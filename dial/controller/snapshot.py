"""What the runtime shows to the outside: one immutable snapshot a tick.

The service, the live view and the metrics read snapshots; they never reach into the
runtime.  Publishing is a single assignment, so a reader sees a whole tick or the one
before it; whoever waits for the next one is woken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from dial.controller.baseline import Baselines
from dial.controller.timeline import Timeline
from dial.types import NO_ORDERS, ApplyReport, Mode, Observation, Orders, Plan

HISTORY = 300
"""Snapshots kept at most: five minutes of ticks of a second."""

HISTORY_BACKENDS = 100_000
"""Backends in them together, at most: of a thousand a hundred ticks are kept.  One with its sample
is most of a KiB."""

LEAST_HISTORY = 10
"""Snapshots kept of however many backends: what is fresh is told by the last ones."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The controller after one tick (or before its first, with all of the last ones empty)."""

    service: str
    adapter: str
    mode: Mode
    started_s: float
    at_s: float
    observation: Observation | None = None
    plan: Plan | None = None
    report: ApplyReport | None = None
    """The last write to the balancer, of this tick or an earlier one."""
    trouble: str | None = None
    """Why this tick made no plan: the balancer cannot be read, for instance."""
    orders: Orders = NO_ORDERS
    """Of operators, at the end of the tick."""
    baselines: Baselines | None = None
    """What is normal for the observation's backends, in their order."""


class Publisher:
    """Holds the newest snapshot and a bounded history, which is shorter of many backends.

    Attributes
    ----------
    timeline
        What has changed from one to the next, for longer.
    published
        How many have been published since the first.
    """

    def __init__(self, first: Snapshot, history: int = HISTORY) -> None:
        self.timeline = Timeline(first)
        self._history: deque[Snapshot] = deque([first], maxlen=history)
        self._next = asyncio.Event()
        self._ended = False
        self.published = 0

    @property
    def current(self) -> Snapshot:
        """The newest snapshot."""
        return self._history[-1]

    def history(self, last: int) -> tuple[Snapshot, ...]:
        """The newest ``last`` snapshots, oldest first."""
        return tuple(self._history)[-last:] if last > 0 else ()

    def publish(self, snapshot: Snapshot) -> None:
        """Make ``snapshot`` the current one."""
        self._history.append(snapshot)
        kept = max(LEAST_HISTORY, HISTORY_BACKENDS // max(1, _backends(snapshot)))
        while len(self._history) > kept:
            self._history.popleft()
        self.timeline.add(snapshot)
        self.published += 1
        self._wake()

    @property
    def ended(self) -> bool:
        """Whether nothing more will be published."""
        return self._ended

    def end(self) -> None:
        """Nothing more will be published; nobody need wait for it."""
        self._ended = True
        self._wake()

    async def next(self) -> None:
        """Wait until a snapshot is published, or none will be any more."""
        if not self._ended:
            await self._next.wait()

    def _wake(self) -> None:
        self._next.set()
        self._next = asyncio.Event()


def _backends(snapshot: Snapshot) -> int:
    return 0 if snapshot.observation is None else len(snapshot.observation.rows)
