"""What the suite needs of a load balancer, real or fake, to put its adapter to the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from dial.adapter import Adapter, RequestBatch

WAIT_S = 15.0
"""Longest wait for something that must come; a test that meets it has failed."""


class Harness(Protocol):
    """One running balancer with a service of two or more equal backends, and its adapter.

    The balancer is fresh: configured weights in force, nothing applied yet.
    """

    adapter: Adapter
    backends: tuple[str, ...]
    """Names of the service's backends; all usable, none failing."""

    async def log_ready(self) -> None:
        """Return once ``adapter.requests()``, begun by the suite, misses no request."""

    async def send(self, requests: int) -> None:
        """Send requests through the balancer; return when all are answered with success."""

    async def garble(self, lines: int) -> None:
        """Put lines into the log that are none of the balancer's."""

    async def restart(self) -> None:
        """Restart or reload; return when the new process serves with configured weights."""

    async def stop(self) -> None:
        """Stop for good; return when nobody answers any more."""


class LogReader:
    """What ``adapter.requests()`` gave so far."""

    def __init__(self) -> None:
        self.batches: list[RequestBatch] = []
        self._came = asyncio.Condition()

    @property
    def rows(self) -> int:
        """Requests read."""
        return sum(len(batch) for batch in self.batches)

    @property
    def malformed(self) -> int:
        """Lines that could not be read."""
        return sum(batch.malformed for batch in self.batches)

    def names(self) -> list[str]:
        """The backend of each request read, in order."""
        return [batch.names[i] for batch in self.batches for i in batch.backend.tolist()]

    async def until(self, *, rows: int = 0, malformed: int = 0) -> None:
        """Wait until at least so many came.

        Raises
        ------
        AssertionError
            If they do not come in time; it says how many did.
        """
        try:
            async with asyncio.timeout(WAIT_S), self._came:
                await self._came.wait_for(lambda: self.rows >= rows and self.malformed >= malformed)
        except TimeoutError:
            raise AssertionError(
                f"after {WAIT_S:g} s: {self.rows} of {rows} requests, {self.malformed} of "
                f"{malformed} malformed lines"
            ) from None

    async def read(self, adapter: Adapter) -> None:
        """Read until the adapter is closed."""
        async for batch in adapter.requests():
            async with self._came:
                self.batches.append(batch)
                self._came.notify_all()


@asynccontextmanager
async def reading_log(harness: Harness) -> AsyncIterator[LogReader]:
    """Read the log in the background; closes the adapter at the end."""
    reader = LogReader()
    task = asyncio.create_task(reader.read(harness.adapter))
    ready = asyncio.create_task(harness.log_ready())
    try:
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield reader
    finally:
        ready.cancel()
        await harness.adapter.aclose()
        async with asyncio.timeout(WAIT_S):
            await task
