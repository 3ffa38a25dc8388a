"""What a reader publishes of one interval: its balancer's state, and a window per backend.

Format 1 is JSON in columns, compressed (zlib)::

    {"format": 1, "reader": "lb-1", "life": 1795211900.25, "seq": 17, "part": 0, "parts": 1,
     "epoch": "...", "algorithm": "roundrobin", "meaning": {...}, "lines": [0, 0, 0],
     "servers": [["s1", 100, 100, true, 2, 1234, 0], ...],
     "windows": [[50, 0, [1204, 1210], [30, 20], [], []], ...]}

``servers`` are the fields of :class:`~dial.types.ServerState`; ``windows``, one a server, are
requests, errors, and the buckets and counts of response and connect times
(:mod:`dial.fleet.sketch`).  ``lines`` are malformed, unattributed and dropped ones.  A message
holds :data:`SERVERS_A_PART` servers at most, so that none is larger than NATS takes (1 MiB).

Whatever comes in is checked: it ends up in weights.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from dial.errors import IntakeError
from dial.fleet.sketch import BUCKETS, Sketch, SketchedWindow
from dial.settings import describe
from dial.types import BalancerState, ServerState, WeightMeaning

SERVERS_A_PART = 500
MAX_PARTS = 200
"""A hundred thousand servers."""

MAX_BYTES = 32 * 1024 * 1024
"""Of one message when it is unpacked: 500 servers with all their buckets in use take 25 MB."""

MAX_REQUESTS = 10_000_000
"""Of one part: at 3,000,000 lines a second, three seconds' worth at one balancer."""

_Name = Annotated[str, Field(min_length=1, max_length=256)]
_Natural = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Bucket = Annotated[int, Field(ge=0, lt=BUCKETS)]
_Count = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]
_Column = Annotated[list[_Bucket], Field(max_length=BUCKETS)]
_Counts = Annotated[list[_Count], Field(max_length=BUCKETS)]
_Server = tuple[_Name, _Natural, _Natural, bool, _Natural, _Natural, _Natural]
_Window = tuple[_Natural, _Natural, _Column, _Counts, _Column, _Counts]


class _Message(BaseModel):
    model_config = ConfigDict(strict=True)

    format: Literal[1] = 1
    reader: _Name
    life: FiniteFloat
    seq: _Natural
    part: Annotated[int, Field(ge=0, lt=MAX_PARTS)]
    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    epoch: Annotated[str, Field(max_length=1024)]
    algorithm: Annotated[str, Field(max_length=256)]
    meaning: WeightMeaning
    lines: tuple[_Natural, _Natural, _Natural]
    servers: Annotated[list[_Server], Field(max_length=SERVERS_A_PART)]
    windows: Annotated[list[_Window], Field(max_length=SERVERS_A_PART)]

    @model_validator(mode="after")
    def _adds_up(self) -> _Message:
        if len(self.windows) != len(self.servers) or self.part >= self.parts:
            raise ValueError("windows and servers, or part and parts, do not go together")
        if sum(window[0] for window in self.windows) > MAX_REQUESTS:
            raise ValueError(f"more than {MAX_REQUESTS} requests in one message")
        for requests, errors, latency, counts, connect, connects in self.windows:
            if len(latency) != len(counts) or len(connect) != len(connects):
                raise ValueError("a column of buckets without as many counts")
            if errors + sum(counts) > requests or sum(connects) > requests:
                raise ValueError("more times than requests")
        return self


@dataclass(frozen=True, slots=True)
class Lines:
    """Log lines of an interval that are no request of the service's."""

    malformed: int = 0
    unattributed: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class WindowPart:
    """One message: some servers of one reader's interval.

    Attributes
    ----------
    reader, life
        Who says it, and when it was started: its numbers begin anew then.
    seq, part, parts
        Number of the interval, and which part of it this is.
    balancer
        As read; its servers are those of this part.
    windows
        One a server.
    lines
        Counted with part 0.
    """

    reader: str
    life: float
    seq: int
    part: int
    parts: int
    balancer: BalancerState
    windows: list[SketchedWindow]
    lines: Lines


def encode(
    balancer: BalancerState,
    windows: Sequence[SketchedWindow],
    lines: Lines,
    *,
    reader: str,
    life: float,
    seq: int,
) -> Iterator[bytes]:
    """The messages of one interval; ``windows`` in the order of the balancer's servers."""
    starts = range(0, max(1, len(windows)), SERVERS_A_PART)
    for part, start in enumerate(starts):
        chosen = slice(start, start + SERVERS_A_PART)
        message = _Message.model_construct(
            reader=reader,
            life=life,
            seq=seq,
            part=part,
            parts=len(starts),
            epoch=balancer.epoch,
            algorithm=balancer.algorithm,
            meaning=balancer.meaning,
            lines=astuple(lines if part == 0 else Lines()),
            servers=[astuple(server) for server in balancer.servers[chosen]],
            windows=[_columns(window) for window in windows[chosen]],
        )
        yield zlib.compress(message.model_dump_json().encode(), 1)


def decode(content: bytes) -> WindowPart:
    """Unpack and check one message.

    Raises
    ------
    IntakeError
        For whatever is wrong with it; never anything else.
    """
    try:
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(content, MAX_BYTES)
        if not unpacking.eof:
            raise IntakeError("too_large", f"windows: cut off, or more than {MAX_BYTES} bytes")
        found = _Message.model_validate_json(unpacked)
    except zlib.error as error:
        raise IntakeError("malformed", f"windows: not compressed by zlib: {error}") from None
    except ValidationError as error:
        raise IntakeError("malformed", f"windows: {describe(error)[:200]}") from None
    servers = tuple(ServerState(*server) for server in found.servers)
    return WindowPart(
        found.reader,
        found.life,
        found.seq,
        found.part,
        found.parts,
        BalancerState(found.epoch, found.algorithm, found.meaning, servers),
        [_window(window) for window in found.windows],
        Lines(*found.lines),
    )


def _columns(window: SketchedWindow) -> _Window:
    latency, connect = window.latency, window.connect
    return (
        window.requests,
        window.errors,
        latency.bucket.tolist(),
        latency.count.tolist(),
        connect.bucket.tolist(),
        connect.count.tolist(),
    )


def _window(columns: _Window) -> SketchedWindow:
    requests, errors, latency, counts, connect, connects = columns
    return SketchedWindow(requests, errors, _sketch(latency, counts), _sketch(connect, connects))


def _sketch(bucket: list[int], count: list[int]) -> Sketch:
    return Sketch(np.array(bucket, np.int64), np.array(count, np.int64))
