"""From a balancer's log to who reads its batches, whatever the log looks like.

Nobody upstream may wait for us: a balancer drops what is not taken, a syslog daemon would block.
So a source always takes, and the queue forgets its oldest batches when its reader is slow, and
counts them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dial.adapter import RequestBatch
from dial.errors import BalancerError

Sink = Callable[[RequestBatch], None]


class Source(Protocol):
    """An open source of log lines.

    One that reads in a task of its own may offer it as ``running``: where that fails, so does
    whoever waits for batches.  One that leaves lines unread for a while, to read many together, may
    offer ``take()``, which reads them now.
    """

    async def close(self) -> None:
        """Stop; what has not been read stays unread."""


OpenSource = Callable[[Sink], Awaitable[Source]]
"""Opens a source that hands its batches to the sink.  What is logged after it has returned is
not lost for want of a listener.  It raises ``BalancerUnreachable`` where it cannot be opened."""


class BatchQueue:
    """Batches in the order they came, bounded by the number of requests in them.

    Parameters
    ----------
    max_requests
        Past it the oldest batches are dropped, but never the newest one.
    """

    def __init__(self, max_requests: int) -> None:
        self.dropped_requests = 0
        self._max = max_requests
        self._batches: deque[RequestBatch] = deque()
        self._requests = 0
        self._lost_malformed = 0
        self._lost_unattributed = 0
        self._dropped_untold = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._error: BaseException | None = None

    def put(self, batch: RequestBatch) -> None:
        """Append; a batch with nothing to tell is left out."""
        if self._closed or not (len(batch) or batch.malformed or batch.unattributed):
            return
        if not len(batch):
            # Kept as a number: an endless stream of garbage is no queue of empty batches.
            self._lost_malformed += batch.malformed
            self._lost_unattributed += batch.unattributed
        else:
            self._batches.append(batch)
            self._requests += len(batch)
        while self._requests > self._max and len(self._batches) > 1:
            oldest = self._batches.popleft()
            self._requests -= len(oldest)
            self.dropped_requests += len(oldest)
            self._dropped_untold += len(oldest)
            self._lost_malformed += oldest.malformed
            self._lost_unattributed += oldest.unattributed
        self._changed.set()

    async def get(self) -> RequestBatch | None:
        """The oldest batch, as soon as there is one; ``None`` when closed.

        Raises
        ------
        BaseException
            What it was closed with.
        """
        while not self._closed:
            batch = self._take()
            if batch is not None:
                return batch
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error
        return None

    def close(self, error: BaseException | None = None) -> None:
        """Let the reader end, or fail."""
        self._closed = True
        self._error = self._error or error
        self._changed.set()

    def _take(self) -> RequestBatch | None:
        malformed, unattributed = self._lost_malformed, self._lost_unattributed
        dropped = self._dropped_untold
        self._lost_malformed = self._lost_unattributed = self._dropped_untold = 0
        if self._batches:
            batch = self._batches.popleft()
            self._requests -= len(batch)
        elif malformed or unattributed:
            batch = _NOTHING
        else:
            return None
        return replace(
            batch,
            malformed=batch.malformed + malformed,
            unattributed=batch.unattributed + unattributed,
            dropped=dropped,
        )


_NOTHING = RequestBatch(
    names=(),
    backend=np.empty(0, dtype=np.int32),
    end_s=np.empty(0),
    latency_ms=np.empty(0),
    connect_ms=np.empty(0),
    failed=np.empty(0, dtype=np.bool_),
)


@dataclass(slots=True)
class LogCounters:
    """What came in since the adapter was made."""

    requests: int = 0
    malformed: int = 0
    unattributed: int = 0

    @property
    def lines(self) -> int:
        """All lines, whatever they said."""
        return self.requests + self.malformed + self.unattributed


class LogStream:
    """The adapter's log: one source, one queue, one reader at a time.

    Parameters
    ----------
    name
        What the log is called in messages.
    open_source
        Opens it.
    max_queued_requests
        Kept for a slow reader; past it the oldest are dropped and counted.
    """

    def __init__(self, name: str, open_source: OpenSource, max_queued_requests: int) -> None:
        self.counters = LogCounters()
        self.opened = asyncio.Event()
        """Set while the source is open: what is logged from then on is read."""
        self._name = name
        self._open_source = open_source
        self._max_queued_requests = max_queued_requests
        self._queue: BatchQueue | None = None
        self._source: Source | None = None
        self._dropped_before = 0
        self._line_came = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether somebody reads it."""
        return self._queue is not None

    @property
    def dropped_requests(self) -> int:
        """Requests whose batch was dropped because its reader was slow."""
        return self._dropped_before + (self._queue.dropped_requests if self._queue else 0)

    async def batches(self) -> AsyncGenerator[RequestBatch, None]:
        """Open the source, and give batches until :meth:`close`.

        Raises
        ------
        BalancerUnreachable
            If the source cannot be opened.
        BalancerError
            If somebody reads already: two readers would each see half.
        """
        if self._queue is not None:
            raise BalancerError(f"log {self._name} is being read already")
        queue = self._queue = BatchQueue(self._max_queued_requests)
        try:
            self._source = await self._open_source(self._take)
            running: asyncio.Future[None] | None = getattr(self._source, "running", None)
            if running is not None:
                running.add_done_callback(lambda ended: _fail(queue, ended))
            self.opened.set()
            while (batch := await queue.get()) is not None:
                yield batch
        finally:
            self._dropped_before += queue.dropped_requests
            self._queue = None
            await self._close_source()

    def take(self) -> None:
        """Have what was logged until now read, where the source would leave it for later."""
        take = getattr(self._source, "take", None)
        if take is not None:
            take()

    async def wait_for_line(self, timeout_s: float) -> LogCounters:
        """Counters as soon as a line came; opens the source for that if nobody reads it.

        Raises
        ------
        BalancerUnreachable
            If the source cannot be opened.
        """
        source = None
        if not self.is_open:
            source = await self._open_source(self._take)
        try:
            if not self.counters.lines:
                async with asyncio.timeout(timeout_s):
                    await self._line_came.wait()
        except TimeoutError:
            pass
        finally:
            if source is not None:
                await source.close()
        return self.counters

    async def close(self) -> None:
        """Close the source, and let the reader end whenever it next looks."""
        if self._queue is not None:
            self._queue.close()
        await self._close_source()

    async def _close_source(self) -> None:
        source, self._source = self._source, None
        self.opened.clear()
        if source is not None:
            await source.close()

    def _take(self, batch: RequestBatch) -> None:
        self.counters.requests += len(batch)
        self.counters.malformed += batch.malformed
        self.counters.unattributed += batch.unattributed
        if self.counters.lines:
            self._line_came.set()
        if self._queue is not None:
            self._queue.put(batch)


def _fail(queue: BatchQueue, ended: asyncio.Future[None]) -> None:
    """A source that reads no more must not look like a balancer without traffic."""
    if not ended.cancelled():
        queue.close(ended.exception())
