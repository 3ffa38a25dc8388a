"""The same for coroutines: many activities at once on one thread.

A thread's pBox would be whichever coroutine ran last, so the activity goes with the coroutine
instead (a context variable, which asyncio copies into each task), and its events name the pBox.
A penalty must not stop the thread that serves everybody: it is waited for where the next
activity of that pBox begins.

The tasks of an activity share its pBox, which knows one wait for a resource.  So the activity
waits for a lock while at least one of its tasks does and none of them has it: what its own tasks
hold up is its own time, not deferral.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from dial_pbox.activities import POOL, Pool
from dial_pbox.library import Bind, Event
from dial_pbox.locks import Resource
from dial_pbox.pboxes import PBox


@dataclass(slots=True, eq=False)
class _Running:
    """The activity of a coroutine and of its tasks.

    Attributes
    ----------
    box
        Another activity's, once this one has ended.
    tasks
        How many wait, by key.
    deferred_by
        Keys for which the pBox waits.
    ended
        A task that outlives the activity is in none.
    """

    box: PBox
    tasks: Counter[int] = field(default_factory=Counter)
    deferred_by: set[int] = field(default_factory=set)
    ended: bool = False

    def tell(self, key: int, deferred: bool) -> None:
        """Tell whether the activity waits, where that has changed."""
        if self.ended or deferred == (key in self.deferred_by):
            return
        if deferred:
            self.deferred_by.add(key)
        else:
            self.deferred_by.remove(key)
        self.box.update(key, Event.PREPARE if deferred else Event.ENTER)

    def end(self) -> None:
        """End it, and its waits."""
        for key in tuple(self.deferred_by):
            self.tell(key, deferred=False)
        self.ended = True
        self.box.end()


_current: ContextVar[_Running | None] = ContextVar("pbox", default=None)


@asynccontextmanager
async def activity(kind: str, pool: Pool = POOL) -> AsyncIterator[PBox]:
    """One activity of a kind, in this coroutine and in the tasks that it makes.

    Raises
    ------
    PBoxError
        If the domain has no room for another pBox.
    """
    box = pool.take(kind)
    try:
        if (wait_s := box.penalty_s) > 0.0:
            await asyncio.sleep(wait_s)
        box.begin(Bind.SHARED)
        running = _Running(box)
        token = _current.set(running)
        try:
            yield box
        finally:
            running.end()
            _current.reset(token)
    finally:
        pool.give_back(kind, box)


class Lock:
    """An :class:`asyncio.Lock` that tells of itself for the coroutine's activity.

    Outside of an activity it is a plain one.

    Parameters
    ----------
    name
        Of the resource.
    """

    def __init__(self, name: str) -> None:
        self.resource = Resource(name)
        self._lock = asyncio.Lock()
        self._holder: _Running | None = None

    async def acquire(self) -> None:
        """Get the lock.  A wait that is cancelled ends there, and nothing is held."""
        running, key = _current.get(), self.resource.key
        if running is None or running.ended:
            await self._lock.acquire()
            return
        # Told also where it is free: others may have been woken for it and not have run yet.
        running.tasks[key] += 1
        self._tell(running)
        try:
            await self._lock.acquire()
            if not running.ended:
                self._holder = running
        finally:
            running.tasks[key] -= 1
            self._tell(running)
        if self._holder is running:
            running.box.update(key, Event.HOLD)

    def release(self) -> None:
        """Give it back, for the activity that got it."""
        self._lock.release()
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.box.update(self.resource.key, Event.UNHOLD)
            self._tell(holder)

    def _tell(self, running: _Running) -> None:
        key = self.resource.key
        running.tell(key, deferred=running.tasks[key] > 0 and self._holder is not running)

    async def __aenter__(self) -> Lock:
        await self.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()
