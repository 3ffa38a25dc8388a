"""What is made of an access log, over gRPC and as JSON, worked out by hand."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.conformance.suite import assert_well_formed
from dial_envoy.endpoints import Server
from dial_envoy.requests import MAX_LINE_BYTES, Attribution, JsonLines, of_entries
from dial_envoy.testing import entry

ADDRESS = ("10.0.0.1", 80)
OURS = Attribution("app", lambda: {ADDRESS: Server("s1", ADDRESS, 100, usable=True)})

LINE: dict[str, object] = {
    "cluster": "app",
    "host": "10.0.0.1:80",
    "start_s": "1795293874.500000",
    "end_us": 4500,
    "first_us": 4000,
    "last_us": 9000,
    "first_retry_us": 300,
    "last_retry_us": 700,
    "before_connect_us": None,
    "connect_us": 17,
    "tries": 1,
    "code": 200,
    "flags": "-",
    "route": None,
}


def of_lines(*lines: object, until: str = "total"):
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    return JsonLines(OURS, until).feed(text.encode())


def both(until="total", *, flags="-", code=200, tries=1, **changes):
    """The same request, logged both ways."""
    logged = entry("app", ADDRESS)
    common = logged.common_properties
    common.start_time.FromJsonString("2026-11-21T20:44:34.5Z")
    for field, us in (
        ("time_to_last_rx_byte", 500),
        ("time_to_first_upstream_tx_byte", 8800),
        ("time_to_first_upstream_rx_byte", 4500 if tries == 1 else 9100),
        ("time_to_last_upstream_rx_byte", 9500),
    ):
        getattr(common, field).FromMicroseconds(us)
    common.upstream_request_attempt_count = tries
    logged.response.response_code.value = code
    for short in flags.split(","):
        if short in FIELDS:
            setattr(common.response_flags, FIELDS[short], True)
    line = LINE | {"flags": flags, "code": code, "tries": tries} | changes
    return of_entries([logged], OURS, until), of_lines(line, until=until)


FIELDS = {
    "UF": "upstream_connection_failure",
    "UC": "upstream_connection_termination",
    "UT": "upstream_request_timeout",
    "UR": "upstream_remote_reset",
    "URX": "upstream_retry_limit_exceeded",
    "DC": "downstream_connection_termination",
}


def test_a_response_time_runs_from_the_whole_request_to_the_last_byte_of_the_server():
    for batch in both():
        # 9.5 ms after the start, less 0.5 ms for the client to send it all
        assert batch.latency_ms.tolist() == pytest.approx([9.0])
        assert batch.end_s.tolist() == pytest.approx([1795293874.5045])
        assert (batch.names, batch.failed.tolist()) == (("s1",), [False])


def test_or_to_the_first_byte_where_the_user_says_so():
    for batch in both("first-byte"):
        assert batch.latency_ms.tolist() == pytest.approx([4.0])


def test_of_a_request_tried_again_only_the_last_try_is_the_named_servers():
    # sent to it after 8.8 ms, the last byte after 9.5
    for batch in both(tries=2):
        assert batch.latency_ms.tolist() == pytest.approx([0.7])


@pytest.mark.parametrize(
    ("flags", "code", "failed"),
    [
        ("-", 200, False),
        ("-", 404, False),
        ("-", 503, True),
        ("UF", 503, True),
        ("UC", 200, True),  # the answer had begun when the server broke it off
        ("UT", 504, True),
        ("UR", 0, True),
        ("URX,UF", 503, True),
        ("DC", 0, False),
        ("DC", 503, False),
        ("DC,UC", 0, True),
    ],
)
def test_flags_and_5xx_are_the_servers_failures_unless_the_client_went_away(flags, code, failed):
    for batch in both(flags=flags, code=code):
        assert batch.failed.tolist() == [failed]


def test_an_answer_that_was_broken_off_has_no_latency_to_its_last_byte():
    logged = entry("app", ADDRESS)
    logged.common_properties.response_flags.downstream_connection_termination = True
    logged.common_properties.ClearField("time_to_last_upstream_rx_byte")
    line = LINE | {"flags": "DC", "last_us": "-"}
    for until, is_known in (("total", False), ("first-byte", True)):
        for batch in (of_entries([logged], OURS, until), of_lines(line, until=until)):
            assert batch.failed.tolist() == [False]
            assert math.isnan(batch.latency_ms[0]) is not is_known


def test_a_connect_time_counts_where_the_connection_was_made_for_the_request():
    (reused,) = of_lines(LINE).connect_ms
    (made,) = of_lines(LINE | {"before_connect_us": 120}).connect_ms
    assert math.isnan(reused)
    assert made == pytest.approx(0.017)
    logged = entry("app", ADDRESS)
    logged.common_properties.custom_tags["dial_connect_us"] = "17"
    assert math.isnan(of_entries([logged], OURS, "total").connect_ms[0])
    logged.common_properties.custom_tags["dial_before_connect_us"] = "120"
    assert of_entries([logged], OURS, "total").connect_ms[0] == pytest.approx(0.017)


def test_other_clusters_and_requests_that_reached_no_server_are_unattributed():
    batch = of_lines(
        LINE | {"cluster": "shop"}, LINE | {"host": None}, LINE | {"host": "10.9.9.9:80"}
    )
    assert (len(batch), batch.unattributed, batch.malformed) == (0, 3, 0)
    batch = of_entries([entry("shop", ADDRESS), entry("app", ("10.9.9.9", 80))], OURS, "total")
    assert (len(batch), batch.unattributed, batch.malformed) == (0, 2, 0)


def test_an_entry_of_a_request_that_still_runs_is_no_request():
    logged = entry("app", ADDRESS)
    logged.common_properties.intermediate_log_entry = True
    assert len(of_entries([logged], OURS, "total")) == 0


def test_a_server_that_has_left_the_pool_is_still_named():
    servers = {ADDRESS: Server("s1", ADDRESS, 100, usable=True)}
    attribution = Attribution("app", lambda: servers)
    assert of_entries([entry("app", ADDRESS)], attribution, "total").names == ("s1",)
    servers.clear()
    assert of_entries([entry("app", ADDRESS)], attribution, "total").names == ("s1",)


def test_lines_that_cannot_be_read_are_counted_and_the_first_is_shown():
    shown: list[bytes] = []
    lines = JsonLines(OURS, "total", shown.append)
    good = json.dumps(LINE).encode()
    batch = lines.feed(b"\n".join([b"nonsense", good, b"[]", b'{"flags": 3}', good, b""]))
    assert (len(batch), batch.malformed, shown) == (2, 3, [b"nonsense"])


def test_an_endless_line_costs_no_memory_and_is_counted_once():
    lines = JsonLines(OURS, "total")
    malformed = sum(lines.feed(b"x" * 50_000).malformed for _ in range(9))
    assert malformed == 1
    assert len(lines._carry) <= MAX_LINE_BYTES
    batch = lines.feed(b"\n" + json.dumps(LINE).encode() + b"\n")
    assert (len(batch), batch.malformed) == (1, 0)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_where_a_stream_is_cut_does_not_matter(garbage, cut):
    text = json.dumps(LINE).encode() + b"\n" + garbage + b"\n" + json.dumps(LINE).encode() + b"\n"
    whole = JsonLines(OURS, "total").feed(text)
    lines = JsonLines(OURS, "total")
    parts = [lines.feed(text[:cut]), lines.feed(text[cut:])]
    assert sum(map(len, parts)) == len(whole)
    assert sum(part.malformed for part in parts) == whole.malformed
    assert sum(part.unattributed for part in parts) == whole.unattributed
    assert_well_formed(whole)


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text("0123456789-.einfa:\x1b", max_size=12)
)


@given(st.dictionaries(st.sampled_from(sorted(LINE)), values))
def test_any_values_give_a_well_formed_batch(changes):
    batch = of_lines(LINE | changes)
    assert_well_formed(batch)
    known = batch.latency_ms[~(batch.latency_ms != batch.latency_ms)]
    assert (known >= 0.0).all()
    assert len(batch) + batch.malformed + batch.unattributed == 1
