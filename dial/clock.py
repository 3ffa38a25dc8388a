"""Time as an argument: the only place that reads it is the clock handed in.

Arithmetic never asks for the time; it is told.  :class:`SystemClock` is for programs,
:class:`ManualClock` for tests, where an hour passes in a microsecond.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What the runtime needs to know of time."""

    def now_s(self) -> float:
        """Wall clock, seconds since the epoch."""

    def monotonic_s(self) -> float:
        """A clock that never steps, for intervals."""

    async def sleep(self, duration_s: float) -> None:
        """Give way for ``duration_s`` seconds; at once when it is not positive."""


class SystemClock:
    """The computer's own clocks."""

    def now_s(self) -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """A clock that never steps."""
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(max(0.0, duration_s))


class ManualClock:
    """A clock that stands still until it is moved; a sleep moves it."""

    def __init__(self, start_s: float = 1_000_000.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """The time last set."""
        return self._now_s

    def monotonic_s(self) -> float:
        """The same time: a manual clock never steps back."""
        return self._now_s

    def advance(self, duration_s: float) -> None:
        """Let ``duration_s`` seconds pass.

        Raises
        ------
        ValueError
            If the duration is negative.
        """
        if duration_s < 0:
            raise ValueError(f"advance({duration_s}): time moves forward only")
        self._now_s += duration_s

    async def sleep(self, duration_s: float) -> None:
        """Advance at once, and let other tasks run."""
        self.advance(max(0.0, duration_s))
        await asyncio.sleep(0)
