"""Case: SELECT FOR UPDATE of one client blocks all others, on a real PostgreSQL.

The paper's case c1 (there in MySQL): a transaction locks rows that others want to change, and
then takes its time.  Nothing is linked with anything here.  What the server's wait events say
is read as the agent reads it (:mod:`dial.pbox.postgres`), so this case is about the signal, and
counts for no reduction of interference.

``python pbox/cases/select_for_update.py`` starts a server of its own (Debian's, on a socket in a
directory of its own), four clients that change rows of one table, and in the middle of it the
transaction.  It prints what a sample of each of the three phases says, as one JSON object.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from dial.agent.files import Unavailable
from dial.pbox.deferral import Totals
from dial.pbox.postgres import WaitEvents
from dial.types import NoData

_BINARIES = Path("/usr/lib/postgresql")

_SETTINGS = """
listen_addresses = ''
fsync = off
autovacuum = off
"""
"""Nothing of it is to survive, and nothing but our own sessions is to run."""

CLIENTS = 4
PHASE_S = 2.0

_UPDATE = "\\set id random(1, 1000)\nUPDATE account SET n = n + 1 WHERE id = :id;\n"


class NoPostgres(Exception):
    """There is no PostgreSQL here."""


class Server:
    """A running server of our own.

    Attributes
    ----------
    conninfo
        How to connect, as the superuser.
    """

    def __init__(self, directory: Path, binaries: Path, as_user: list[str]) -> None:
        self.directory = directory
        self.binaries = binaries
        self.conninfo = f"host={directory} user=postgres dbname=postgres"
        self._as_user = as_user

    def sql(self, text: str) -> str:
        """Run one statement; its answer, unaligned."""
        argv = ["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]
        argv += ["-d", self.conninfo, "-c", text]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    def session(self, *statements: str) -> subprocess.Popen[bytes]:
        """A session that runs statements in the background, one after the other."""
        argv = ["psql", "-X", "-q", "-d", self.conninfo]
        argv += [word for statement in statements for word in ("-c", statement)]
        return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @contextmanager
    def updating(self, clients: int = CLIENTS, at_most_s: int = 60) -> Iterator[None]:
        """Clients that change one row after the other of ``account``."""
        script = self.directory / "update.sql"
        script.write_text(_UPDATE, encoding="ascii")
        argv = [str(self.binaries / "pgbench"), "-n", "-c", str(clients), "-T", str(at_most_s)]
        argv += ["-f", str(script), self.conninfo]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(argv, stdout=quiet, stderr=quiet) as running:
            try:
                until(lambda: self.sql("SELECT sum(n) > 100 FROM account") == "t")
                yield
            finally:
                running.terminate()

    def waiting(self) -> int:
        """How many locks are wanted and not had."""
        return int(self.sql("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    def control(self, *arguments: str) -> None:
        """Run pg_ctl."""
        argv = [*self._as_user, str(self.binaries / "pg_ctl"), "-D", str(self.directory / "data")]
        subprocess.run([*argv, *arguments], check=True, stdout=subprocess.DEVNULL)


def until(done: Callable[[], bool], within_s: float = 15.0) -> None:
    """Wait until something is so; raises :class:`TimeoutError` if it is not in time."""
    give_up_s = time.monotonic() + within_s
    while not done():
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"not so after {within_s:g} s")
        time.sleep(0.05)


@contextmanager
def server() -> Iterator[Server]:
    """Start a server with a table ``account`` of a thousand rows; nothing of it is left.

    Raises
    ------
    NoPostgres
        If it is not installed.
    """
    versions = sorted(_BINARIES.glob("*/bin/initdb"))
    if not versions:
        raise NoPostgres(f"{_BINARIES}: no PostgreSQL here; `make setup-dev` installs it")
    binaries = versions[-1].parent
    directory = Path(tempfile.mkdtemp(prefix="dial-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        owner = pwd.getpwnam("postgres")
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        as_user = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}"]
        as_user += ["--clear-groups", "--"]
    running = Server(directory, binaries, as_user)
    try:
        initdb = [str(binaries / "initdb"), "-D", str(directory / "data"), "-U", "postgres"]
        initdb += ["-A", "trust", "--no-sync"]
        subprocess.run([*as_user, *initdb], check=True, stdout=subprocess.DEVNULL)
        with (directory / "data" / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"{_SETTINGS}unix_socket_directories = '{directory}'\n")
        running.control("-w", "-l", str(directory / "log"), "start")
        try:
            running.sql("CREATE TABLE account (id int PRIMARY KEY, n int)")
            running.sql("INSERT INTO account SELECT i, 0 FROM generate_series(1, 1000) i")
            yield running
        finally:
            running.control("-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def reading(source: WaitEvents, within_s: float = 5.0) -> Totals:
    """The next reading there is; raises what kept it away if that lasts."""
    give_up_s = time.monotonic() + within_s
    while True:
        try:
            return source.read()
        except Unavailable:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.05)


def told_over(source: WaitEvents, seconds: float = PHASE_S) -> Mapping[str, object]:
    """What a sample of the next seconds says."""
    before = reading(source)
    time.sleep(seconds)
    return source.rates(before, reading(source), seconds)


def run(running: Server) -> dict[str, Mapping[str, object]]:
    """The case: what is told before, while, and after one client holds all rows."""
    with closing(WaitEvents(running.conninfo, time.monotonic)) as source, running.updating():
        quiet = told_over(source)
        blocker = running.session(
            "BEGIN",
            "SELECT * FROM account FOR UPDATE",
            f"SELECT pg_sleep({2.0 * PHASE_S})",
            "COMMIT",
        )
        until(lambda: running.waiting() >= CLIENTS)
        blocked = told_over(source)
        blocker.wait(30)
        until(lambda: running.waiting() == 0)
        return {"quiet": quiet, "blocked": blocked, "after": told_over(source)}


def main() -> int:
    """Print what is told."""
    try:
        with server() as running:
            told = run(running)
    except NoPostgres as error:
        sys.stderr.write(f"{error}\n")
        return 1
    document = {
        phase: {
            name: {"no_data": value.reason} if isinstance(value, NoData) else value
            for name, value in fields.items()
        }
        for phase, fields in told.items()
    }
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
