r"""The same signal from a PostgreSQL server: who of its active sessions waits for whom.

Problem
    A database that one cannot link with a library still says what each of its sessions waits
    for, in ``pg_stat_activity``; but it says so of this moment, and keeps no totals.

Formula
    Looked at every P = 0.1 s, a session that is found active counts as P seconds of activity,
    and one that is found waiting for another as P seconds of deferral.  The sums estimate T_e
    and T_d without bias, whatever the lengths of the waits.  Of n looks at sessions the
    fraction T_d/T_e is off by at most 0.5/sqrt(n): by 0.08 with four active sessions in a
    second.

Regimes
    Lock, BufferPin
        one session holds what another wants: a row, a table, a page.
    LWLock
        the server's own structures; but WALWrite and (up to version 13) BufferIO stand for the
        end of somebody's write or read, and a slow disk is not the application's doing.
    IO, IPC, Client, Timeout, Extension
        no session waits for another there.
    idle, also in a transaction
        no activity: whoever holds a lock and does nothing adds nothing to T_e.

Source
    PostgreSQL's documentation, "The Cumulative Statistics System", table "Wait Event Types".
    Sampling active sessions is what Oracle's active session history does.  Own otherwise.

How it is asked
    ``psql`` keeps one session and repeats the query by itself (``\watch``); the agent reads
    what has come whenever it takes a sample, and never waits for the server.  libpq then does
    what it does for everybody: service files, password files, sockets, TLS.  When the agent
    dies, psql's next line breaks its pipe, and ends it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping

from dial.agent.files import Unavailable
from dial.errors import SettingError
from dial.pbox.deferral import FIELDS, Totals, signals
from dial.types import Measured, Named

PERIOD_S = 0.1
"""Between two looks.  One costs the server a third of a millisecond with a hundred sessions."""

RETRY_S = 5.0
"""From the end of one psql to the start of the next: a server that restarts needs seconds."""

_MOST_LINE_BYTES = 65_536
"""Of one look: a few hundred kinds of wait, each named once."""

_MOST_SESSIONS = 262_143
"""PostgreSQL's own limit of max_connections."""

_MARK = "dial"
"""Begins our lines; ``\\watch`` adds titles and blank ones."""

_ERROR = re.compile(r"\b(error|fatal|panic)\b", re.IGNORECASE)
"""What psql and the server call a reason to end, among warnings, titles, details and hints."""

_QUERY = """
SELECT 'dial', coalesce(sum(n) FILTER (WHERE wait IS NULL), 0),
  coalesce(json_object_agg(wait, n) FILTER (WHERE wait IS NOT NULL), '{}')
FROM (
  SELECT CASE
      WHEN backend_type IS NULL THEN NULL
      WHEN wait_event_type IN ('Lock', 'LWLock', 'BufferPin')
        AND wait_event NOT IN ('WALWrite', 'BufferIO') THEN wait_event_type || ':' || wait_event
      ELSE '' END AS wait, count(*) AS n
  FROM pg_stat_activity
  WHERE pid <> pg_backend_pid() AND (backend_type IS NULL
    OR state = 'active' AND backend_type IN ('client backend', 'parallel worker'))
  GROUP BY 1
) AS waits
"""
"""One line: the mark, how many sessions we may not look at, and how many are active by what they
wait for (nothing of another session's: the empty name)."""

_ENVIRONMENT = {
    "PGAPPNAME": "dial-agent",
    "PGCONNECT_TIMEOUT": "5",
    "PGOPTIONS": "-c statement_timeout=2s -c default_transaction_read_only=on",
}


class WaitEvents:
    """Deferral from the wait events of one server.

    Parameters
    ----------
    conninfo
        As libpq takes it, such as ``service=app`` or ``host=/run/postgresql dbname=app``.
    monotonic_s
        A clock that never steps.

    Raises
    ------
    SettingError
        If ``conninfo`` holds a password: command lines are everybody's to read.
    """

    metrics = FIELDS

    def __init__(self, conninfo: str, monotonic_s: Callable[[], float]) -> None:
        if "password" in conninfo.lower() or ("://" in conninfo and "@" in conninfo):
            raise SettingError(
                "--postgres: holds a password or a user in a URL; put the password in a file "
                "(~/.pgpass) and name the user as user=NAME"
            )
        self._conninfo = conninfo
        self._monotonic_s = monotonic_s
        self._psql: subprocess.Popen[bytes] | None = None
        self._ended_s: float | None = None
        self._rest = b""
        self._words = ""
        self._totals = Totals()
        self._looks = 0
        self._hidden = 0

    def read(self) -> Totals:
        """Take in the looks since the last reading; the first one starts psql.

        Raises
        ------
        Unavailable
            If psql is not there or has ended, or the server hides its sessions from us.
        """
        if self._psql is None:
            self._psql = self._started()
            return self._totals  # what is counted from now on is beyond these
        psql, looks = self._psql, self._looks
        ended = self._drain(psql)
        if ended is not None:
            raise Unavailable(f"psql ended: {ended}")
        if self._looks == looks:
            raise Unavailable("the database has not answered since the last sample")
        if self._hidden:
            raise Unavailable(
                f"{self._hidden} sessions are hidden from this role; GRANT pg_read_all_stats TO it"
            )
        return self._totals

    def rates(
        self,
        before: Totals,
        after: Totals,
        interval_s: float,  # noqa: ARG002 - the signature of every Collector
    ) -> Mapping[str, Measured | Named]:
        """Return the fields of a sample."""
        return signals(before, after)

    def close(self) -> None:
        """End psql, if it runs."""
        if self._psql is not None:
            self._psql.kill()
            self._psql.communicate()
            self._psql = None

    def _started(self) -> subprocess.Popen[bytes]:
        now_s = self._monotonic_s()
        if self._ended_s is not None and now_s - self._ended_s < RETRY_S:
            raise Unavailable("psql has ended, and is started again in a moment")
        argv = ["psql", "-X", "-A", "-t", "-q", "-w", "-F", " ", "-v", "ON_ERROR_STOP=1"]
        argv += ["-d", self._conninfo, "-f", "-"]
        try:
            psql = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | _ENVIRONMENT,
            )
        except OSError as error:
            self._ended_s = now_s
            raise Unavailable(f"psql: {error.strerror}; it is in postgresql-client") from error
        assert psql.stdin is not None and psql.stdout is not None  # noqa: S101, PT018 - both pipes
        os.set_blocking(psql.stdout.fileno(), False)
        self._rest, self._words = b"", ""
        try:
            psql.stdin.write(f"{_QUERY}\\watch {PERIOD_S}\n".encode())
            psql.stdin.flush()
        except OSError:
            pass  # it has ended already, and its last words say why
        return psql

    def _drain(self, psql: subprocess.Popen[bytes]) -> str | None:
        """Take in all that can be read at once; return what psql said if it has ended."""
        assert psql.stdout is not None  # noqa: S101 - a pipe
        while chunk := psql.stdout.read(_MOST_LINE_BYTES):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[-_MOST_LINE_BYTES:]
            for line in lines:
                self._take(line)
        if chunk is None:  # nothing more for now
            return None
        self._take(self._rest)
        self._ended_s = self._monotonic_s()
        self.close()
        return self._words or "without a word"

    def _take(self, raw: bytes) -> None:
        """Count a look; of other lines since the last one remember why psql may be about to end."""
        line = raw.decode("utf-8", "replace").strip()
        if self._look(line):
            self._words = ""
        elif not self._words or (_ERROR.search(line) and not _ERROR.search(self._words)):
            self._words = line

    def _look(self, line: str) -> bool:
        """Count one look; whether the line is one."""
        mark, _, rest = line.partition(" ")
        hidden, _, counts = rest.partition(" ")
        if mark != _MARK:
            return False
        try:
            self._hidden = int(hidden)
            sessions = {str(wait): int(n) for wait, n in json.loads(counts).items()}
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return False
        if not all(0 <= n <= _MOST_SESSIONS for n in sessions.values()):
            return False
        self._looks += 1
        self._totals = counted(self._totals, sessions)
        return True


def counted(totals: Totals, sessions: Mapping[str, int]) -> Totals:
    """The totals after one more look.

    Parameters
    ----------
    totals
        Before it.
    sessions
        Active ones by what they wait for; the empty name for nothing of another session's.

    Examples
    --------
    >>> counted(Totals(), {"": 3, "Lock:tuple": 1})
    Totals(active_s=0.4, deferred_s=0.1, deferred_by_resource_s={'Lock:tuple': 0.1})
    """
    waits = {wait: PERIOD_S * n for wait, n in sessions.items() if wait}
    past = totals.deferred_by_resource_s
    return Totals(
        totals.active_s + PERIOD_S * sum(sessions.values()),
        totals.deferred_s + sum(waits.values()),
        {**past, **{wait: past.get(wait, 0.0) + waited_s for wait, waited_s in waits.items()}},
    )
