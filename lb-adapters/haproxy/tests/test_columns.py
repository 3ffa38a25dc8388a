"""Many lines at once are read as they are one at a time, in arrays and by compiled code."""

from __future__ import annotations

from datetime import UTC

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dial.conformance.suite import assert_well_formed
from dial_haproxy import compiled
from dial_haproxy.columns import (
    LEAST_LINES,
    MAX_NAME_BYTES,
    MAX_NAMES,
    PADDING,
    Buffer,
    Names,
    Seconds,
)
from dial_haproxy.parser import LogParser

COMPACT = b"app,s1,1795211945545012,1795211945546393,0,0,1,1,200,----,0,0,-"
HTTPLOG = (
    b"<134>Nov 20 22:14:15 haproxy[6778]: 127.0.0.1:53776 [20/Nov/2026:22:14:15.978] fe app/s1 "
    b'2/3/4/5/20 200 51 - - ---- 1/1/0/0/0 0/0 "GET /x HTTP/1.1"'
)

FIELD = st.sampled_from(
    [b"0", b"1", b"12", b"345", b"1234", b"12345678", b"123456789", b"-1", b"+7", b"-", b"", b"x"]
)


@pytest.fixture(scope="module", autouse=True)
def _compiled_by_now():
    """Compiling takes longer than one example may."""
    LogParser("app", "dial", compiled=True)


@st.composite
def compact_line(draw) -> bytes:
    fields = COMPACT.split(b",")
    for at in draw(st.lists(st.integers(0, 12), max_size=2)):
        fields[at] = draw(
            FIELD
            | st.sampled_from([b"s2", b"server-of-a-longer-name", b"other", b"<NOSRV>", b"CD--"])
            | st.sampled_from(
                [b"1795211945545013", b"SC--", b"----\t", b"/a/route", b"a,b", b"500"]
            )
        )
    head = draw(st.sampled_from([b"", b"", b"", b"<134>Nov 20 h haproxy[1]: "]))
    return head + b",".join(fields) + draw(st.sampled_from([b"", b"", b"\r"]))


@st.composite
def httplog_line(draw) -> bytes:
    words = HTTPLOG.split(b" ")
    for at in draw(st.lists(st.integers(4, len(words) - 1), max_size=2)):
        words[at] = draw(
            FIELD
            | st.sampled_from(
                [b"app/s2", b"other/s1", b"app/<NOSRV>", b"0/0/0/-1/5", b"1/2/3/4/+5"]
            )
            | st.sampled_from(
                [b"1/1/0/0/+1", b"1/1/0/0/0/0", b"a\tb", b"[20/Nov/2026:22:14:16.001]"]
            )
            | st.sampled_from([b"[20/Xxx/2026:22:14:16.001]", b"[+1/Nov/2026:22:14:16.001]"])
        )
    return b" ".join(words)


def rows(parser: LogParser, data: bytes, pieces: int) -> list[object]:
    """All that is known of each request, in order, and what was left out."""
    found: list[object] = []
    malformed = unattributed = 0
    size = max(1, -(-len(data) // pieces))
    batches = [parser.feed(data[at : at + size]) for at in range(0, len(data), size)]
    for batch in [*batches, parser.finish()]:
        assert_well_formed(batch)
        malformed += batch.malformed
        unattributed += batch.unattributed
        columns = (batch.end_s, batch.latency_ms, batch.connect_ms, batch.failed)
        routes = batch.route or ("",) * len(batch)
        for i, backend in enumerate(batch.backend.tolist()):
            figures = tuple(repr(column[i].item()) for column in columns)
            found.append((batch.names[backend], *figures, routes[i]))
    return [*found, malformed, unattributed]


def assert_read_alike(data: bytes, log_format, pieces: int, **options) -> None:
    one_by_one = LogParser("app", log_format, zone=UTC, **options)
    one_by_one._has_columns = False
    expected = rows(one_by_one, data, pieces)
    for by_compiled_code in (False, True):
        together = LogParser("app", log_format, zone=UTC, compiled=by_compiled_code, **options)
        assert rows(together, data, pieces) == expected


@settings(max_examples=150)
@given(
    odd=st.lists(compact_line() | st.binary(max_size=40), max_size=12),
    pieces=st.integers(1, 3),
    until=st.sampled_from(["total", "first-byte"]),
    new=st.booleans(),
)
def test_compact_lines_are_read_alike(odd, pieces, until, new):
    lines = [COMPACT, *odd, *[COMPACT] * 2 * LEAST_LINES, *odd]
    data = b"".join(line + b"\n" for line in lines)
    assert_read_alike(data, "dial", pieces, until=until, new_connections=new)


@settings(max_examples=150)
@given(odd=st.lists(httplog_line() | st.binary(max_size=40), max_size=12), pieces=st.integers(1, 3))
def test_httplog_lines_are_read_alike(odd, pieces):
    lines = [HTTPLOG, *odd, *[HTTPLOG] * 2 * LEAST_LINES, *odd]
    data = b"".join(line + b"\n" for line in lines)
    assert_read_alike(data, "httplog", pieces)


@pytest.mark.parametrize("by_compiled_code", [False, True], ids=["arrays", "compiled"])
def test_ordinary_lines_are_read_in_columns(by_compiled_code):
    for log_format, line in (("dial", COMPACT), ("httplog", HTTPLOG)):
        parser = LogParser("app", log_format, zone=UTC, compiled=by_compiled_code)
        parser.feed(line + b"\n")  # its server is known from here on
        parser._read_lines = lambda lines, parts: [pytest.fail(repr(one)) for one in lines]
        assert len(parser.feed((line + b"\n") * 1000)) == 1000


@pytest.mark.parametrize("log_format", ["dial", "httplog"])
@given(data=st.binary(max_size=400), cut=st.integers(1, 100))
def test_what_stands_behind_the_lines_changes_nothing(log_format, data, cut):
    # Ordinary lines, cut off anywhere, as the last ones of all.
    whole = COMPACT if log_format == "dial" else HTTPLOG
    line = whole[:cut]
    names = Names()
    names.place(b"s1")
    read = compiled.compact if log_format == "dial" else compiled.httplog
    table = names if log_format == "dial" else Seconds(lambda _: 0.0)
    for piece in (line + b"\n", data + b"\n", line * 3 + data + b"\n" + line + b"\n"):
        for behind in (b"", whole[cut:], b"0" * PADDING):
            padded = memoryview(piece + behind + bytes(PADDING))
            columns, others = read(padded, len(piece), b"app", names, table)
            assert columns.line.size + others.shape[1] == piece.count(b"\n")


@pytest.mark.parametrize("service", ["my app", "a,b", ""])
def test_a_service_whose_name_no_line_can_hold_is_found_in_none(service):
    line = COMPACT.replace(b"app", service.encode())
    assert len(LogParser(service, "dial").feed((line + b"\n") * 100)) == 0


def test_rows_keep_the_order_of_the_lines_whoever_read_them():
    other = COMPACT.replace(b",0,0,1,1,", b",0,0,1,+7,")
    parser = LogParser("app", "dial")
    batch = parser.feed(b"".join((one + b"\n") for one in [COMPACT, COMPACT, other] * 50))
    assert (batch.latency_ms == 7.0).tolist() == [False, False, True] * 50


@pytest.mark.parametrize("by_compiled_code", [False, True], ids=["arrays", "compiled"])
@pytest.mark.parametrize("size", [8, 63, 64])
def test_names_of_up_to_64_bytes_are_read_in_columns(size, by_compiled_code):
    parser = LogParser("app", "dial", compiled=by_compiled_code)
    line = COMPACT.replace(b",s1,", b"," + b"n" * size + b",")
    parser.feed(line + b"\n")
    parser._read_lines = lambda lines, parts: [pytest.fail(repr(one)) for one in lines]
    assert len(parser.feed((line + b"\n") * 1000)) == 1000


def test_names_are_found_by_all_of_their_bytes():
    names = Names()
    known = [
        b"s1",
        b"s10",
        b"s" * 8,
        b"s" * 9,
        b"s" * 64,
        b"x" * 63,
        *[b"n%d" % i for i in range(500)],
    ]
    for name in known:
        names.place(name)
    asked = [*known, b"s2", b"s1\0", b"s" * 10, b"s" * 65, b""]
    data = b"\n".join(asked) + b"\n"
    buffer = Buffer(data + bytes(PADDING), len(data))
    found = names.find(buffer, buffer.starts, buffer.ends - buffer.starts)
    assert found.tolist() == [*range(len(known)), *[-1] * 5]


def test_names_are_bounded():
    names = Names()
    assert names.place(b"x" * (MAX_NAME_BYTES + 1)) is None
    names.names.extend([b""] * MAX_NAMES)
    assert names.place(b"one more") is None


def test_numbers_of_any_length_are_read():
    texts = [b"0", b"9", b"10", b"999", b"1234", b"12345", b"12345678", b"123456789", b"", b"1a"]
    for some in (texts[:2], texts[:5], texts):
        data = b"\n".join(some) + b"\n"
        buffer = Buffer(data + bytes(PADDING), len(data))
        numbers, fits = buffer.digits(buffer.starts, buffer.ends - buffer.starts)
        good = [text.isdigit() and len(text) <= 8 for text in some]
        assert fits.tolist() == good
        assert numbers[np.array(good)].tolist() == [
            int(text) for text, is_good in zip(some, good, strict=True) if is_good
        ]
