"""Log lines as HAProxy 2.6 wrote them, and lines it never would."""

from __future__ import annotations

from datetime import UTC
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.conformance.suite import assert_well_formed
from dial_haproxy.parser import MAX_LINE_BYTES, LogParser

GOOD = b"app,s1,1795211945545012,1795211945546393,0,0,1,1,200,----,0,0,-\n"
DEAD = b"app,s2,1795211952554244,1795211955557755,0,-1,-1,3003,503,SC--,0,3,-\n"
HTTPLOG = (
    b"<134>Nov 20 22:14:15 haproxy[6778]: 127.0.0.1:53776 [20/Nov/2026:22:14:15.978] fe app/s1 "
    b'2/3/4/5/20 200 51 - - ---- 1/1/0/0/0 0/0 "GET /x HTTP/1.1"\n'
)


def compact(data: bytes, **options):
    return LogParser("app", "dial", **options).feed(data)


def httplog(data: bytes, **options):
    return LogParser("app", "httplog", zone=UTC, **options).feed(data)


def test_compact_latency_has_microseconds_where_the_answer_has_next_to_no_body():
    batch = compact(GOOD)
    # 546.393 ms - 545.012 ms = 1.381 ms
    assert batch.latency_ms.tolist() == [1.381]
    assert batch.end_s.tolist() == [1795211945.546393]
    assert (batch.names, batch.failed.tolist(), batch.route) == (("s1",), [False], None)


def test_an_answers_body_counts_unless_latency_ends_at_the_first_byte():
    long = GOOD.replace(b",0,0,1,1,", b",0,0,1,250,")
    assert compact(long).latency_ms.tolist() == [250.0]
    assert compact(long, until="first-byte").latency_ms.tolist() == [1.381]


def test_a_client_that_sends_its_request_slowly_makes_no_server_slow():
    slow_client = GOOD.replace(b",0,0,1,1,", b",900,0,1,902,")
    assert compact(slow_client).latency_ms.tolist() == [2.0]


def test_a_client_that_breaks_off_makes_no_server_slow():
    gone = GOOD.replace(b",0,0,1,1,", b",0,0,1,9000,").replace(b"----", b"CD--")
    assert compact(gone).latency_ms.tolist() == [1.381]


def test_a_server_that_refused_the_connection_failed_and_has_no_latency():
    batch = compact(DEAD)
    assert batch.failed.tolist() == [True]
    assert np.isnan(batch.latency_ms).all()  # 3 s went by, but it is HAProxy's own 503
    assert np.isnan(batch.connect_ms).all()


def test_connect_time_zero_counts_only_where_every_connection_is_new():
    assert np.isnan(compact(GOOD).connect_ms).all()
    assert compact(GOOD, new_connections=True).connect_ms.tolist() == [0.0]
    slow = GOOD.replace(b",0,0,1,1,", b",0,7,1,1,")
    assert compact(slow).connect_ms.tolist() == [7.0]


def test_a_redispatched_request_blames_its_time_on_nobody():
    batch = compact(GOOD.replace(b",0,0,-\n", b",0,+1,-\n"))
    assert len(batch) == 1
    assert np.isnan(batch.latency_ms).all()


@pytest.mark.parametrize(
    ("status", "state", "failed"),
    [
        (b"200", b"----", False),
        (b"404", b"----", False),
        (b"500", b"----", True),
        (b"502", b"SH--", True),
        (b"504", b"sH--", True),
        (b"200", b"SD--", True),
        (b"200", b"DD--", True),
        (b"503", b"CC--", False),
        (b"-1", b"CH--", False),
        (b"200", b"cD--", False),
    ],
)
def test_a_failure_is_the_servers_doing_not_the_clients(status, state, failed):
    line = GOOD.replace(b",200,----,", b"," + status + b"," + state + b",")
    assert compact(line).failed.tolist() == [failed]


def test_a_request_without_an_answer_ends_after_its_active_time():
    batch = compact(b"app,s1,1795211945000000,-,0,1,-1,250,-1,CH--,0,0,-\n")
    assert batch.end_s.tolist() == [1795211945.25]
    assert np.isnan(batch.latency_ms).all()


@pytest.mark.parametrize(
    "line",
    [
        b"app,<NOSRV>,1795211945545012,1795211945546393,-1,-1,-1,0,503,SC--,0,0,-\n",
        b"other,s1,1795211945545012,1795211945546393,0,0,1,1,200,----,0,0,-\n",
        b"fe,<NOSRV>,-,-,-1,-1,-1,0,400,PR--,0,0,-\n",
    ],
)
def test_requests_of_no_server_of_ours_are_unattributed(line):
    batch = compact(line)
    assert (len(batch), batch.unattributed, batch.malformed) == (0, 1, 0)


def test_a_route_may_hold_commas():
    batch = compact(GOOD.replace(b",-\n", b",/a,b\n") + GOOD)
    assert batch.route == ("/a,b", "")


def test_the_route_may_be_left_out_of_the_format():
    assert len(compact(GOOD.replace(b",-\n", b"\n"))) == 1


def test_a_syslog_header_before_a_compact_line_is_skipped():
    assert len(compact(b"<134>Nov 20 22:14:15 host haproxy[6778]: " + GOOD)) == 1


def test_httplog_latency_is_all_but_the_time_to_receive_the_request():
    # Ta 20 ms, of which the request took 2 (TR)
    assert httplog(HTTPLOG).latency_ms.tolist() == [18.0]


def test_httplog_latency_to_the_first_byte_is_queue_connect_and_response():
    batch = httplog(HTTPLOG, until="first-byte")
    # 3 + 4 + 5 ms, and the answer began 2 ms (TR) + 12 ms after 22:14:15.978 UTC
    assert batch.latency_ms.tolist() == [12.0]
    assert batch.connect_ms.tolist() == [4.0]
    assert batch.end_s.tolist() == pytest.approx([1795212855.992], abs=1e-6)


def test_httplog_cut_off_inside_the_url_is_read():
    assert len(httplog(HTTPLOG[:-20] + b"\n")) == 1


def test_httplog_of_a_server_that_broke_off_failed_without_latency():
    batch = httplog(HTTPLOG.replace(b"2/3/4/5/20 200 51 - - ----", b"0/0/0/-1/7 502 209 - - SH--"))
    assert batch.failed.tolist() == [True]
    assert np.isnan(batch.latency_ms).all()
    assert batch.end_s.tolist() == pytest.approx([1795212855.985], abs=1e-6)


@pytest.mark.parametrize("date", [b"31/Feb/2026:22:14:15", b"20/Foo/2026:22:14:15"])
def test_httplog_with_an_impossible_date_is_malformed(date):
    assert httplog(HTTPLOG.replace(b"20/Nov/2026:22:14:15", date)).malformed == 1


@given(cuts=st.lists(st.integers(0, len(GOOD + DEAD) * 2), max_size=8))
def test_the_pieces_a_stream_comes_in_change_nothing(cuts):
    data = (GOOD + DEAD) * 2
    parser = LogParser("app", "dial")
    edges = [0, *sorted(cuts), len(data)]
    batches = [parser.feed(data[a:b]) for a, b in pairwise(edges)]
    assert sum(map(len, batches)) == 4
    assert sum(b.malformed for b in batches) == 0


LINE = st.one_of(
    st.binary(max_size=80).filter(lambda b: b"\n" not in b and b.strip(b"\r")),
    st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=3)).map(
        lambda change: GOOD[: change[0]] + change[1].replace(b"\n", b"x") + GOOD[change[0] + 1 : -1]
    ),
)


@given(lines=st.lists(LINE, max_size=20), log_format=st.sampled_from(["dial", "httplog"]))
def test_every_line_is_a_row_or_counted_and_none_stops_the_next(lines, log_format):
    parser = LogParser("app", log_format, zone=UTC)
    batch = parser.feed(b"".join(line + b"\n" for line in lines))
    assert_well_formed(batch)
    assert len(batch) + batch.malformed + batch.unattributed == len(lines)
    assert len(parser.feed(GOOD if log_format == "dial" else HTTPLOG)) == 1


def test_an_endless_line_is_dropped_and_counted_once():
    parser = LogParser("app", "dial")
    counts = [parser.feed(b"x" * MAX_LINE_BYTES).malformed for _ in range(50)]
    assert sum(counts) == 1
    after = parser.feed(b"x\n" + GOOD)
    assert (len(after), after.malformed) == (1, 0)


def test_a_line_cut_off_by_the_end_of_the_stream_is_malformed():
    parser = LogParser("app", "dial")
    parser.feed(GOOD + GOOD[:-2])
    assert parser.finish().malformed == 1
    assert parser.finish().malformed == 0


def test_the_first_malformed_line_of_a_stream_is_shown_and_no_other():
    shown = []
    parser = LogParser("app", "dial", on_malformed=shown.append)
    parser.feed(GOOD + b"first\n")
    parser.feed(b"second\n" + GOOD[:-2])
    parser.finish()
    assert shown == [b"first"]
