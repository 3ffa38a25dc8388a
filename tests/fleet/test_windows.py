"""What readers publish reads back as it was, and nothing else is taken."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.errors import IntakeError
from dial.fleet import windows as module
from dial.fleet.sketch import Sketch, SketchedWindow
from dial.fleet.windows import SERVERS_A_PART, Lines, decode, encode
from dial.types import BalancerState, ServerState, WeightKind, WeightMeaning

MEANING = WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True)


def sketch(*pairs: tuple[int, int]) -> Sketch:
    return Sketch(np.array([b for b, _ in pairs], int), np.array([c for _, c in pairs], int))


def balancer(servers: int) -> BalancerState:
    return BalancerState(
        "77:1",
        "roundrobin",
        MEANING,
        tuple(ServerState(f"s{i}", 24, 100, True, 1, 500 + i, 2) for i in range(servers)),
    )


WINDOW = SketchedWindow(5, 1, sketch((100, 1), (120, 3)), sketch((7, 2)))


def messages(servers: int = 1) -> list[bytes]:
    return list(
        encode(
            balancer(servers), [WINDOW] * servers, Lines(1, 2, 3), reader="lb-1", life=1.5, seq=4
        )
    )


def altered(**fields: object) -> bytes:
    return zlib.compress(json.dumps(json.loads(zlib.decompress(messages()[0])) | fields).encode())


def test_an_interval_reads_back_as_it_was():
    (message,) = messages()
    part = decode(message)
    assert (part.reader, part.life, part.seq, part.part, part.parts) == ("lb-1", 1.5, 4, 0, 1)
    assert part.balancer == balancer(1)
    assert part.lines == Lines(1, 2, 3)
    (window,) = part.windows
    assert (window.requests, window.errors) == (5, 1)
    assert window.latency.bucket.tolist() == [100, 120]
    assert window.latency.count.tolist() == [1, 3]
    assert window.connect.count.tolist() == [2]


def test_many_servers_go_in_parts_and_lines_are_told_once():
    parts = [decode(message) for message in messages(2 * SERVERS_A_PART + 1)]
    assert [len(part.balancer.servers) for part in parts] == [SERVERS_A_PART, SERVERS_A_PART, 1]
    assert [(part.part, part.parts) for part in parts] == [(0, 3), (1, 3), (2, 3)]
    assert [part.lines.malformed for part in parts] == [1, 0, 0]


def test_a_balancer_without_servers_is_told_too():
    (message,) = messages(0)
    assert decode(message).balancer.servers == ()


@given(st.binary() | st.binary().map(zlib.compress))
def test_garbage_is_refused_and_nothing_else_happens(content):
    with pytest.raises(IntakeError):
        decode(content)


@pytest.mark.parametrize(
    "fields",
    [
        {"format": 2},
        {"reader": ""},
        {"life": "NaN"},
        {"part": 1},
        {"windows": []},
        {"windows": [[5, 1, [100], [1, 3], [], []]]},  # a count too many
        {"windows": [[5, 1, [100, 120], [1, 4], [], []]]},  # 1 error and 5 times of 5 requests
        {"windows": [[5, 1, [10**9], [1], [], []]]},
        {"windows": [[10**9, 0, [], [], [], []]]},
        {"servers": [["s1", -1, 100, True, 0, 0, 0]]},
        {"servers": [["s1", 1.5, 100, True, 0, 0, 0]]},
    ],
)
def test_what_does_not_add_up_is_refused(fields):
    with pytest.raises(IntakeError):
        decode(altered(**fields))


def test_what_unpacks_to_more_than_is_allowed_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    with pytest.raises(IntakeError, match="more than 100 bytes"):
        decode(zlib.compress(b"x" * 10_000))
