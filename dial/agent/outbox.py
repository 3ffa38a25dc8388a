"""Samples that wait to be delivered: bounded, oldest dropped first.

A controller can be away for an hour; the agent's memory must not know.  The newest
samples are the ones worth keeping, because the controller refuses stale ones anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Condition

from dial.types import AgentSample


class Outbox:
    """A bounded queue between the sampling and the pushing thread.

    Parameters
    ----------
    capacity
        Samples kept at most, at least 1.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._samples: deque[AgentSample] = deque()
        self._changed = Condition()
        self._closed = False
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def dropped(self) -> int:
        """Samples dropped for want of room, since the beginning."""
        return self._dropped

    def put(self, sample: AgentSample) -> None:
        """Add the newest sample; never blocks."""
        with self._changed:
            self._samples.append(sample)
            self._trim()
            self._changed.notify_all()

    def take(self, most: int) -> tuple[AgentSample, ...]:
        """Remove and return the oldest samples, at most ``most``; empty when there is none."""
        with self._changed:
            return tuple(self._samples.popleft() for _ in range(min(most, len(self._samples))))

    def put_back(self, samples: Sequence[AgentSample]) -> None:
        """Return samples that :meth:`take` gave, to their place at the old end."""
        with self._changed:
            self._samples.extendleft(reversed(samples))
            self._trim()

    def close(self) -> None:
        """Wake whoever waits: nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Block until there is a sample, or the outbox is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._samples or self._closed)

    def wait_closed(self, timeout_s: float) -> bool:
        """Block for ``timeout_s`` seconds or until closed; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, timeout_s)

    def _trim(self) -> None:
        while len(self._samples) > self._capacity:
            self._samples.popleft()
            self._dropped += 1
