"""The live stream on a real socket: each tick, every event, slow readers, and how many at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from fastapi import FastAPI
from starlette.types import Message

from dial.controller.snapshot import Publisher, Snapshot
from dial.metrics import Metrics
from dial.service import stream as stream_module
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.server import serve
from dial.service.stream import EventStream, Streams
from dial.settings import ApiSettings

WITHIN_S = 10.0
HEAD = b"GET /v1/stream HTTP/1.1\r\nHost: dial\r\n\r\n"


class Reader:
    """One connection to the stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def line(self, begin: bytes) -> bytes:
        """The rest of the next line that begins so."""
        async with asyncio.timeout(WITHIN_S):
            while not (line := await self.reader.readline()).startswith(begin):
                assert line, "the stream ended"
            return line.removeprefix(begin).strip()

    async def event(self) -> tuple[str, dict[str, object]]:
        name = await self.line(b"event: ")
        return name.decode(), dict(json.loads(await self.line(b"data: ")))


@asynccontextmanager
async def reading(port: int) -> AsyncIterator[Reader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(HEAD)
        yield Reader(reader, writer)
    finally:
        writer.close()


async def streams(metrics: Metrics, wanted: int) -> None:
    """Wait until so many are open."""
    async with asyncio.timeout(WITHIN_S):
        while metrics.registry.get_sample_value("dial_api_streams") != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def tick(snapshot: Snapshot, number: int) -> Snapshot:
    assert snapshot.observation is not None
    return replace(snapshot, observation=replace(snapshot.observation, tick=number))


async def test_it_begins_with_the_state_and_follows_each_tick_and_event(
    app: FastAPI, publisher: Publisher, after: Snapshot
) -> None:
    async with serve(app, ApiSettings(port=0)) as port, reading(port) as reader:
        assert (await reader.line(b"HTTP/1.1 ")) == b"200 OK"
        assert (await reader.line(b"content-type: ")) == b"text/event-stream; charset=utf-8"
        name, state = await reader.event()
        assert (name, state["tick"]) == ("state", None)
        publisher.publish(tick(after, 7))
        assert (await reader.event())[1]["tick"] == 7
        decisions = [await reader.event() for _ in range(3)]
        assert [(n, e["number"]) for n, e in decisions] == [("decision", i) for i in (1, 2, 3)]
        publisher.publish(tick(after, 8))
        assert (await reader.event())[1]["tick"] == 8
        publisher.end()
        async with asyncio.timeout(WITHIN_S):
            assert await reader.reader.read() == b"\n\r\n0\r\n\r\n"


async def test_silence_is_broken_by_comments(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, publisher: Publisher
) -> None:
    monkeypatch.setattr(stream_module, "HEARTBEAT_S", 0.01)
    async with serve(app, ApiSettings(port=0)) as port, reading(port) as reader:
        await reader.line(b": still here")
        publisher.end()


async def test_a_slow_reader_misses_ticks_never_events_and_nobody_waits_for_it(
    parts: Parts, publisher: Publisher, after: Snapshot, metrics: Metrics
) -> None:
    sent: list[bytes] = []
    taken, gate = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> None:
        if body := message.get("body"):
            sent.append(body)
            taken.set()
            await gate.wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    stream = EventStream(parts, Streams(1, metrics))
    serving = asyncio.create_task(stream({"type": "http"}, receive, send))
    async with asyncio.timeout(WITHIN_S):
        await taken.wait()
        for number in range(7, 12):  # the reader has not even taken the first state
            publisher.publish(tick(after, number))
        gate.set()
        publisher.end()
        await serving
    assert b'"tick":null' in sent[0]
    (late,) = sent[1:]
    assert b'"tick":11' in late
    assert late.count(b"event: decision") == 3
    assert metrics.registry.get_sample_value("dial_api_stream_skips_total") == 4


async def test_a_reader_that_takes_nothing_at_all_loses_its_place(
    app: FastAPI,
    publisher: Publisher,
    after: Snapshot,
    metrics: Metrics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_module, "STALL_S", 0.1)
    assert after.observation is not None
    # More than the sockets of both sides hold.
    many = replace(after.observation, backends=after.observation.backends[:1] * 20_000)
    async with serve(app, ApiSettings(port=0)) as port, reading(port) as slow:
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await streams(metrics, 1)
        publisher.publish(replace(after, observation=many))
        publisher.publish(replace(after, observation=many))
        await streams(metrics, 0)
        publisher.end()


async def test_one_stream_too_many_is_429_and_a_place_is_free_again_afterwards(
    parts: Parts, metrics: Metrics, publisher: Publisher
) -> None:
    few = parts.settings.model_copy(update={"api": ApiSettings(max_streams=1)})
    async with serve(create_app(replace(parts, settings=few)), ApiSettings(port=0)) as port:
        async with reading(port) as first:
            await first.event()
            async with reading(port) as second:
                assert await second.line(b"HTTP/1.1 ") == b"429 Too Many Requests"
                assert b'"too_many_streams"' in await second.line(b'{"error":')
        await streams(metrics, 0)
        async with reading(port) as third:
            await third.event()
        publisher.end()
