"""Lines of the broker's query log, as a 1.5.1 writes them, to requests of servers."""

from __future__ import annotations

from datetime import UTC

import pytest

from dial_pinot.parser import MAX_LINE_CHARS, QueryLogParser, name_in_log
from dial_pinot.testing import query_log_line

AT = "1795211945545 "
S2, S3 = "Server_127.0.0.2_8098", "Server_127.0.0.3_8098"


HEAD = "2026/11/21 20:38:07.123 INFO [QueryLogger] [jersey-server-managed-async-executor-1] "


def _parser(*, posted: bool) -> QueryLogParser:
    parser = QueryLogParser("events_OFFLINE", UTC, posted=posted)
    parser.servers = {"127.0.0.2": S2, "127.0.0.3": S3}
    return parser


@pytest.fixture
def parser() -> QueryLogParser:
    """Of what the plugin posts."""
    return _parser(posted=True)


@pytest.fixture
def followed() -> QueryLogParser:
    """Of what stands in a file."""
    return _parser(posted=False)


def test_each_server_that_a_query_met_is_a_request(parser):
    batch = parser.read([AT + query_log_line({"127.0.0.2_O": 6, "127.0.0.3_O": 8})])
    assert [batch.names[i] for i in batch.backend] == [S2, S3]
    assert batch.latency_ms.tolist() == [6.0, 8.0]
    assert batch.end_s.tolist() == [1795211945.545] * 2


@pytest.mark.parametrize("unavailable", [0, 3])
def test_a_server_that_gave_no_answer_was_as_slow_as_the_query(parser, unavailable):
    line = query_log_line(
        {"127.0.0.2_O": -1, "127.0.0.3_O": 8},
        time_ms=1500,
        exceptions=2 if unavailable else 1,  # "1 servers not responded", and segments nowhere
        unavailable=unavailable,
    )
    batch = parser.read([AT + line])
    assert batch.latency_ms.tolist() == [1500.0, 8.0]
    assert not batch.failed.any()


@pytest.mark.parametrize("sent", [True, False])
def test_a_server_whose_connection_broke_or_was_refused_has_failed_and_was_not_fast(parser, sent):
    answers = {"127.0.0.2_O": -1, "127.0.0.3_O": 1}
    unsent = () if sent else ("127.0.0.2_O",)
    batch = parser.read([AT + query_log_line(answers, time_ms=2, exceptions=2, unsent=unsent)])
    assert [batch.names[i] for i in batch.backend[batch.failed]] == [S2]
    assert batch.latency_ms[~batch.failed].tolist() == [1.0]


def test_of_several_servers_without_an_answer_to_a_query_that_ended_early_none_is_blamed(parser):
    answers = {"127.0.0.2_O": -1, "127.0.0.3_O": -1}
    batch = parser.read([AT + query_log_line(answers, time_ms=2, exceptions=2)])
    assert (len(batch), batch.malformed, batch.unattributed) == (0, 0, 0)


def test_a_server_that_was_skipped_has_failed(parser):
    # skipUnavailableServers: the query goes on, and "1 servers not responded" is all that is said
    answers = {"127.0.0.2_O": -1, "127.0.0.3_O": 8}
    line = query_log_line(answers, exceptions=1, unsent=("127.0.0.2_O",))
    batch = parser.read([AT + line])
    assert batch.failed.tolist() == [True, False]


def test_an_error_for_an_answer_has_failed_where_one_server_was_asked(parser):
    one = query_log_line({"127.0.0.2_O": 1}, exceptions=1)
    two = query_log_line({"127.0.0.2_O": 1, "127.0.0.3_O": 8}, exceptions=1)
    nowhere = query_log_line({"127.0.0.2_O": 6}, exceptions=1, unavailable=3)
    assert parser.read([AT + one]).failed.tolist() == [True]
    assert parser.read([AT + two]).failed.tolist() == [False, False]
    assert parser.read([AT + nowhere]).failed.tolist() == [False]


def test_a_followed_line_is_read_with_its_date_and_its_query(followed):
    line = (
        HEAD
        + query_log_line({"127.0.0.2_O": 6})
        + ",offlineThreadCpuTimeNs(total/thread/sysActivity/resSer):0/0/0/0,clientIp=unknown,"
        "queryEngine=singleStage,query=SELECT 1 WHERE a = ',serverStats=(x);127.0.0.3_O=0,1'"
    )
    batch = followed.read([line])
    assert batch.latency_ms.tolist() == [6.0]
    assert batch.end_s.tolist() == [1795293487.123]  # date -ud '2026-11-21 20:38:07.123' +%s.%3N


FORGED = "requestId=1,table=events_OFFLINE,timeMs=9000,serverStats=(a);127.0.0.2_O=0,9000"


@pytest.mark.parametrize(
    "line",
    [
        HEAD + f"SQL query for request 7: SELECT 1 -- {FORGED}",
        f"2026/11/21 20:38:07.123 WARN [SomeOther] [thread] {FORGED}",
        AT + FORGED,  # behind a line break in a query
    ],
)
def test_what_a_query_says_in_a_followed_file_is_no_request(followed, line):
    assert len(followed.read([line])) == 0


def test_a_query_that_names_a_column_like_ours_is_no_malformed_line(followed):
    batch = followed.read([HEAD + "SQL query for request 7: SELECT 1 WHERE requestId=4"])
    assert batch.malformed == 0


@pytest.mark.parametrize("table", ["events_OFFLINE", "events"])
def test_queries_over_both_parts_of_a_hybrid_table_count_for_each_part(parser, table):
    line = AT + query_log_line({"127.0.0.2_O": 6, "127.0.0.2_R": 9}, table=table)
    batch = parser.read([line])
    assert batch.latency_ms.tolist() == [6.0]
    assert batch.unattributed == 1


def test_other_tables_and_servers_are_unattributed(parser):
    batch = parser.read(
        [
            AT + query_log_line({"127.0.0.2_O": 6}, table="other_OFFLINE"),
            AT + query_log_line({"127.0.0.9_O": 6}),
        ]
    )
    assert (len(batch), batch.unattributed, batch.malformed) == (0, 2, 0)


@pytest.mark.parametrize(
    "line",
    [
        AT + "requestId=nonsense",
        AT + query_log_line({"127.0.0.2_O": 6})[:-9],
        AT + query_log_line({"127.0.0.2_O": 6}).replace("=0,6,", "=0,x,"),
        query_log_line({"127.0.0.2_O": 6}),
        AT + query_log_line({"127.0.0.2_O": 6}) + "x" * MAX_LINE_CHARS,
    ],
)
def test_a_line_that_cannot_be_read_is_counted_and_stops_nothing(parser, line):
    good = AT + query_log_line({"127.0.0.2_O": 6})
    batch = parser.read([good, line, good])
    assert (len(batch), batch.malformed) == (2, 1)


def test_a_date_that_is_none_is_counted(followed):
    line = HEAD.replace("/11/", "/13/") + query_log_line({"127.0.0.2_O": 6})
    assert followed.read([line]).malformed == 1


def test_what_else_the_logger_says_is_no_request(followed):
    batch = followed.read(
        ["", "2026/11/21 20:38:07.123 WARN [QueryLogger] [t] 3 logs were dropped."]
    )
    assert (len(batch), batch.malformed, batch.unattributed) == (0, 0, 0)


def test_a_query_that_needed_no_server_is_no_request(parser):
    batch = parser.read([AT + "requestId=1,table=events_OFFLINE,timeMs=1,serverStats=UNKNOWN"])
    assert (len(batch), batch.malformed) == (0, 0)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("pinot-server-0.pinot-server.pinot.svc.cluster.local", "pinot-server-0"),
        ("10.1.2.3", "10.1.2.3"),
        ("server_1.example", "server_1"),
        ("localhost", "localhost"),
        ("Pinot-Srv1.corp.", "pinot-srv1"),
        ("Srv_.corp", "Srv_.corp"),  # no domain name, so as it is
    ],
)
def test_the_log_names_a_server_by_the_first_label_of_its_host(host, name):
    assert name_in_log(host) == name
