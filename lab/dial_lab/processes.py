"""Starting programs so that none outlives the lab, wherever they are to run.

Three things have to be true of a program *before* its first instruction: it dies with the
lab (``setpriv --pdeathsig KILL``: also when the lab itself is killed and can clean nothing
up), it is bound to its cores, and it is in its control group.  They are set by small
programs that replace themselves by the next; doing it from Python between fork and exec
would need code that must not take a lock in a process that has threads.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from dial.errors import LabError

_STOP_WAIT_S = 3.0


def clean_up_when_told_to_end() -> None:
    """Unwind on SIGTERM as on Ctrl-C, so that machines and programs are removed; exit code 143."""
    signal.signal(signal.SIGTERM, _unwind)


def _unwind(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def launch_line(
    argv: Sequence[str], *, cores: Iterable[int] = (), join: Iterable[Path] = ()
) -> list[str]:
    """The command line that starts ``argv`` on ``cores``, in the groups of ``join``.

    Parameters
    ----------
    argv
        Program and arguments.
    cores
        Cores to run on; all when empty.
    join
        ``cgroup.procs`` files to be written to.
    """
    line = ["setpriv", "--pdeathsig", "KILL", "--"]
    on = ",".join(str(core) for core in cores)
    if on:
        line += ["taskset", "--cpu-list", on]
    joins = " && ".join(f"echo $$ > {shlex.quote(str(path))}" for path in join)
    if joins:
        line += ["sh", "-c", f'{joins} && exec "$@"', "sh"]
    return [*line, *argv]


@dataclass(frozen=True, slots=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    finite: bool


@dataclass
class Children:
    """The programs of one run or one block; leaving the ``with`` ends them, newest first."""

    log_dir: Path
    _running: list[_Child] = field(default_factory=list)

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cores: Iterable[int] = (),
        join: Iterable[Path] = (),
        stdout: int | None = None,
        finite: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a program; what it prints goes to ``NAME.log`` unless ``stdout`` is given.

        A ``finite`` one may end by itself, with code 0.
        """
        log = (self.log_dir / f"{name}.log").open("ab")
        process = subprocess.Popen(
            launch_line(argv, cores=cores, join=join),
            stdin=subprocess.DEVNULL,
            stdout=log if stdout is None else stdout,
            stderr=log,
        )
        self._running.append(_Child(name, process, log, finite))
        return process

    def check(self) -> None:
        """Notice a program that ended by itself.

        Raises
        ------
        LabError
            Naming it, its exit code and its last words.
        """
        for child in self._running:
            code = child.process.poll()
            if code is None or (child.finite and code == 0):
                continue
            log = self.log_dir / f"{child.name}.log"
            lines = log.read_text(errors="replace").strip().splitlines()
            said = lines[-1] if lines else "nothing in its log"
            raise LabError(f"{child.name} ended with code {code}: {said} ({log})")

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End one program: TERM, then KILL after three seconds."""
        for child in self._running:
            if child.process is process:
                self._running.remove(child)
                _end(process)
                child.log.close()
                return

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            child.process.terminate()
        while self._running:
            self.stop(self._running[-1].process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
