"""The adapter's log: one source, counters by server, a queue, one reader at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from zoneinfo import ZoneInfo

from dial.adapter import RequestBatch
from dial.errors import BalancerError
from dial.logs import BatchQueue, LogCounters
from dial_pinot.options import Options
from dial_pinot.parser import QueryLogParser
from dial_pinot.sources import Broker, Source, open_source

_log = logging.getLogger(__name__)


class QueryLog:
    """Takes what brokers post or a file holds, from when it is opened until it is closed.

    Pinot counts no queries by server, so the counters by server are made of the log itself: it has
    to be open before the first reading of the balancer.
    """

    def __init__(self, table: str, options: Options) -> None:
        self.counters = LogCounters()
        self.by_server: Counter[str] = Counter()
        """Requests of each server since the log was opened."""
        self.failed_by_server: Counter[str] = Counter()
        """Those of them that failed."""
        self.brokers: dict[str, Broker] = {}
        """What each broker's plugin last said, by sender."""
        self.opened = asyncio.Event()
        """Set while somebody reads from an open source: from then on no line is missed."""
        self._options = options
        zone = None if options.timezone == "local" else ZoneInfo(options.timezone)
        self._parser = QueryLogParser(table, zone, posted=options.log_file is None)
        self._source: Source | None = None
        self._queue: BatchQueue | None = None
        self._dropped_before = 0
        self._closed = False
        self._line_came = asyncio.Event()
        self._opening = asyncio.Lock()

    @property
    def dropped_requests(self) -> int:
        """Requests whose batch was dropped because its reader was slow."""
        return self._dropped_before + (self._queue.dropped_requests if self._queue else 0)

    async def open(self, servers: Mapping[str, str]) -> None:
        """Open the source if it is not, and read from now on for these servers.

        Parameters
        ----------
        servers : server by its name in the log.

        Raises
        ------
        BalancerUnreachable
            If it cannot be opened.
        """
        self._parser.servers = servers
        async with self._opening:
            if self._source is None and not self._closed:
                self._source = await open_source(self._options, self)
        if self._source is not None:
            self._source.poll()

    async def batches(self) -> AsyncGenerator[RequestBatch, None]:
        """Give batches from an open source until :meth:`close`.

        Raises
        ------
        BalancerError
            If somebody reads already: two readers would each see half.
        """
        if self._queue is not None:
            raise BalancerError(f"log {self._options.log} is being read already")
        if self._closed:
            return  # while the reader was on its way here
        queue = self._queue = BatchQueue(self._options.max_queued_requests)
        self.opened.set()
        try:
            while (batch := await queue.get()) is not None:
                yield batch
        finally:
            self._dropped_before += queue.dropped_requests
            self._queue = None

    async def wait_for_line(self, timeout_s: float) -> LogCounters:
        """Counters as soon as a line came, or after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._line_came.wait()
        except TimeoutError:
            pass
        return self.counters

    async def close(self) -> None:
        """Close the source, and let the reader end whenever it next looks."""
        self._closed = True
        self.opened.clear()
        if self._queue is not None:
            self._queue.close()
        source, self._source = self._source, None
        if source is not None:
            await source.close()

    def lines(self, lines: list[str]) -> None:
        """Whole lines of the query log, from the source."""
        batch = self._parser.read(lines)
        if batch.malformed and not self.counters.malformed:
            _log.warning(
                "log %s: a line cannot be read; it and others like it are left out and counted",
                self._options.log,
            )
        self.counters.requests += len(batch)
        self.counters.malformed += batch.malformed
        self.counters.unattributed += batch.unattributed
        for code, name in enumerate(batch.names):
            mine = batch.backend == code
            self.by_server[name] += int(mine.sum())
            self.failed_by_server[name] += int(batch.failed[mine].sum())
        if self.counters.lines:
            self._line_came.set()
        if self._queue is not None:
            self._queue.put(batch)

    def broker(self, broker: Broker) -> None:
        """A plugin's word of itself, from the source."""
        if len(self.brokers) >= _MAX_BROKERS and broker.sender not in self.brokers:
            self.brokers.clear()
        self.brokers[broker.sender] = broker


_MAX_BROKERS = 1_000
"""Senders remembered; each restart of a broker is a new one."""
