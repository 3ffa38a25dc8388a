"""Wait events of a real PostgreSQL: SELECT FOR UPDATE that blocks others shows, load does not."""

from __future__ import annotations

import os
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from dial.agent.files import Unavailable
from dial.errors import SettingError
from dial.pbox.deferral import Totals
from dial.pbox.postgres import RETRY_S, WaitEvents, counted
from dial.types import NoData


def silent(source: WaitEvents) -> bool:
    """Read; whether nothing has come yet.  Any other trouble is raised."""
    try:
        source.read()
    except Unavailable as error:
        if "not answered" not in str(error):
            raise
        return True
    return False


def test_select_for_update_that_blocks_others_is_deferral_and_their_load_is_not(
    case, postgres
) -> None:
    told = case.run(postgres)
    assert told["quiet"]["deferral_fraction"] < 0.3
    # Four sessions wait, and the one that holds the rows sleeps in a statement: 4 of 5.
    assert told["blocked"]["deferral_fraction"] == pytest.approx(0.8, abs=0.05)
    assert told["blocked"]["interference_level"] == pytest.approx(4.0, rel=0.3)
    assert told["blocked"]["top_resource"] in ("Lock:transactionid", "Lock:tuple")
    assert told["after"]["deferral_fraction"] < 0.3


def test_an_idle_server_has_no_activity(case, postgres) -> None:
    with closing(WaitEvents(postgres.conninfo, time.monotonic)) as source:
        told = case.told_over(source, 0.5)
    assert told["deferral_fraction"] == NoData("no activity in this interval")
    assert isinstance(told["top_resource"], NoData)


def test_a_role_that_may_not_see_other_sessions_is_told_what_to_grant(case, postgres) -> None:
    postgres.sql("CREATE ROLE nosy LOGIN")
    conninfo = postgres.conninfo.replace("user=postgres", "user=nosy")
    with postgres.session("SELECT pg_sleep(30)") as sleeper:
        with (
            closing(WaitEvents(conninfo, time.monotonic)) as source,
            pytest.raises(Unavailable, match="GRANT pg_read_all_stats"),
        ):
            case.until(lambda: silent(source) and False)
        postgres.sql("GRANT pg_read_all_stats TO nosy")
        with closing(WaitEvents(conninfo, time.monotonic)) as source:
            assert case.told_over(source, 0.5)["deferral_fraction"] == 0.0
        sleeper.terminate()


def test_a_server_that_is_away_says_so_and_is_asked_again_later(case) -> None:
    now_s = 0.0
    with closing(WaitEvents("host=/nowhere dbname=postgres", lambda: now_s)) as source:
        with pytest.raises(Unavailable, match="No such file or directory"):
            case.until(lambda: silent(source) and False)
        with pytest.raises(Unavailable, match="in a moment"):
            source.read()
        now_s = RETRY_S
        with pytest.raises(Unavailable, match="No such file or directory"):
            case.until(lambda: silent(source) and False)


def test_a_restart_of_the_server_loses_no_more_than_its_own_time(case, postgres) -> None:
    now_s = 0.0
    with (
        closing(WaitEvents(postgres.conninfo, lambda: now_s)) as source,
        postgres.session("SELECT pg_sleep(60)"),
    ):
        before = case.reading(source)
        postgres.control("-w", "-m", "immediate", "restart")
        with pytest.raises(Unavailable, match="psql ended"):
            case.until(lambda: silent(source) and False)
        now_s = RETRY_S
        # Totals go on from where they were: a difference of two readings is never negative.
        case.reading(source)
        assert case.reading(source).active_s >= before.active_s


def test_lines_that_are_no_look_are_no_measurement() -> None:
    source = WaitEvents("dbname=x", lambda: 0.0)
    for line in ("", "Sat 21 Nov", "dial", "dial 0", "dial 0 [1]", 'dial 0 {"": "x"}', "dial 0 {"):
        assert not source._look(line)
    assert source._totals == Totals()
    assert source._look('dial 0 {"": 2, "LWLock:WALInsert": 1}')
    assert source._totals == counted(Totals(), {"": 2, "LWLock:WALInsert": 1})


_TITLE = "Sat 21 Nov 2026 22:00:00 (every 0.1s)"
_LOOK = 'dial 0 {"": 2}'
_FATAL = "psql:<stdin>:18: FATAL:  terminating connection due to administrator command"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([_TITLE, "", _FATAL, "server closed the connection unexpectedly"], _FATAL),
        (["WARNING:  collation version mismatch", _LOOK, _TITLE, _FATAL], _FATAL),
        (
            ["psql: Fehler: keine Verbindung", "Läuft der Server dort?"],
            "psql: Fehler: keine Verbin",
        ),
        ([_TITLE, _LOOK], "without a word"),
        ([], "without a word"),
    ],
)
def test_psqls_last_words_are_its_error_however_they_arrive(lines: list[str], told: str) -> None:
    source = WaitEvents("dbname=x", lambda: 0.0)
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with os.fdopen(read_end, "rb", 0) as stdout, os.fdopen(write_end, "wb", 0) as psql:
        fake = SimpleNamespace(stdout=stdout)
        psql.write("".join(f"{line}\n" for line in lines[:-1]).encode())
        assert source._drain(fake) is None
        psql.write("".join(lines[-1:]).encode())  # it dies before the end of the line
        assert source._drain(fake) is None
        psql.close()
        ended = source._drain(fake)
    assert ended is not None
    assert ended.startswith(told)


@pytest.mark.parametrize(
    "conninfo", ["dbname=x password=secret", "postgresql://u:secret@h/db", "PASSWORD=secret"]
)
def test_a_password_on_the_command_line_is_refused_and_not_repeated(conninfo: str) -> None:
    with pytest.raises(SettingError, match="--postgres") as refusal:
        WaitEvents(conninfo, time.monotonic)
    assert "secret" not in str(refusal.value)
