"""Where log bytes come from, and the bounded queue between them and who reads batches.

Nobody upstream may wait for us: HAProxy drops what is not taken, rsyslog would block.  So a
source always takes, and the queue forgets its oldest batches when its reader is slow, and
counts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from dial.adapter import RequestBatch
from dial.errors import BalancerError
from dial_haproxy.options import Options
from dial_haproxy.parser import LogParser
from dial_haproxy.sources import Source, open_source

_log = logging.getLogger(__name__)

_SHOWN_BYTES = 80
"""Of a line that cannot be read: enough to tell formats apart, and in an httplog not yet the
URL, which may hold somebody's secret."""


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
        """The oldest batch, as soon as there is one; ``None`` when closed."""
        while not self._closed:
            batch = self._take()
            if batch is not None:
                return batch
            self._changed.clear()
            await self._changed.wait()
        return None

    def close(self) -> None:
        """Let the reader end."""
        self._closed = True
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


_NOTHING = LogParser("", "dial").feed(b"")


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
    service
        Backend whose requests are wanted.
    options
        Checked options: where the log comes from and how it is read.
    """

    def __init__(self, service: str, options: Options) -> None:
        self.counters = LogCounters()
        self.opened = asyncio.Event()
        """Set while the source is open: what is logged from then on is read."""
        self._service = service
        self._options = options
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
            raise BalancerError(f"log {self._options.log} is being read already")
        queue = self._queue = BatchQueue(self._options.max_queued_requests)
        try:
            self._source = await open_source(self._options, self._parser, self._take)
            self.opened.set()
            while (batch := await queue.get()) is not None:
                yield batch
        finally:
            self._dropped_before += queue.dropped_requests
            self._queue = None
            await self._close_source()

    async def wait_for_line(self, timeout_s: float) -> LogCounters:
        """Counters as soon as a line came; opens the source for that if nobody reads it.

        Raises
        ------
        BalancerUnreachable
            If the source cannot be opened.
        """
        source = None
        if not self.is_open:
            source = await open_source(self._options, self._parser, self._take)
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

    def _parser(self) -> LogParser:
        return LogParser(
            self._service,
            self._options.format,
            new_connections=self._options.new_connections,
            until=self._options.latency,
            zone=self._options.zone,
            on_malformed=self._complain,
        )

    def _complain(self, line: bytes) -> None:
        """Say what cannot be read, once a connection: a wrong format is wrong in each line."""
        shown = repr(line[:_SHOWN_BYTES]) + ("..." if len(line) > _SHOWN_BYTES else "")
        _log.warning(
            "log %s: line %s is not in format %s; it and others like it are left out and counted",
            self._options.log,
            shown,
            self._options.format,
        )

    def _take(self, batch: RequestBatch) -> None:
        self.counters.requests += len(batch)
        self.counters.malformed += batch.malformed
        self.counters.unattributed += batch.unattributed
        if self.counters.lines:
            self._line_came.set()
        if self._queue is not None:
            self._queue.put(batch)
