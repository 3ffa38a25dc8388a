"""The live stream: server-sent events, at each reader's own pace.

A reader is given the newest snapshot when it has taken the one before, so nothing queues up for a
slow one and nobody waits for it: what it misses are ticks.  Events of the timeline carry numbers
and are kept by the publisher, so that these it gets late, and all.

    event: state        the answer of /v1/state
    event: decision     one of /v1/events
    : still here        every few seconds, whether anything happens or not

Source
    HTML Living Standard, 9.2, Server-sent events.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from pydantic import TypeAdapter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dial.controller.timeline import Event
from dial.metrics import Metrics
from dial.service.parts import Parts

HEARTBEAT_S = 5.0
"""Proxies close what is silent for half a minute or so; a page notices a loss in two of these."""

STALL_S = 20.0
"""A reader that takes nothing for so long has gone, or may come again."""

_EVENT = TypeAdapter(Event)


class Streams:
    """How many are open.

    Parameters
    ----------
    limit : of streams at a time.
    metrics : where they are counted.
    """

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self.limit = limit
        self.metrics = metrics
        self.open = 0

    @property
    def full(self) -> bool:
        """Whether no more may be opened."""
        return self.open >= self.limit

    def count(self, more: int) -> None:
        """One begins, or ends."""
        self.open += more
        self.metrics.streams.set(self.open)


class EventStream(Response):
    """The answer that goes on until its reader leaves or the controller ends."""

    media_type = "text/event-stream"

    def __init__(self, parts: Parts, streams: Streams) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._parts = parts
        self._streams = streams

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send until there is nobody to send to."""
        self._streams.count(+1)
        leaving = asyncio.create_task(_left(receive))
        sending = asyncio.create_task(self._send_all(send))
        try:
            await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.count(-1)
            for task in (leaving, sending):
                task.cancel()
            results = await asyncio.gather(leaving, sending, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, OSError | TimeoutError):
                raise result

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        publisher = self._parts.publisher
        number = max((e.number for e in publisher.timeline.after(0, 1)), default=0)
        sent = publisher.published
        await _give(send, b"retry: 2000\n\n" + self._state())
        while True:
            if publisher.published == sent:
                with suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await publisher.next()
            if publisher.published == sent:
                if publisher.ended:
                    break
                await _give(send, b": still here\n\n")
                continue
            self._streams.metrics.stream_skips.inc(publisher.published - sent - 1)
            sent = publisher.published
            decisions = publisher.timeline.after(number)
            number = max((e.number for e in decisions), default=number)
            text = b"".join(_event(b"decision", _EVENT.dump_json(e)) for e in decisions)
            await _give(send, self._state() + text)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _state(self) -> bytes:
        return _event(b"state", self._parts.state_json())


def _event(name: bytes, data: bytes) -> bytes:
    """One event; JSON as it is made here has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (name, data)


async def _give(send: Send, body: bytes) -> None:
    """Hand over to the reader, who has some time to take it."""
    async with asyncio.timeout(STALL_S):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
