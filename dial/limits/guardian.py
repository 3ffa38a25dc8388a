"""Puts the limits back when the agent was killed: a process that waits for its end.

No handler runs on SIGKILL.  So the agent starts this process with a pipe as standard input; when
the agent has gone, however it went, the pipe ends, and what its journal still holds is put back.
After a clean exit the journal is empty, and there is nothing to do.  Where both are killed at
once, the next agent finds the journal.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dial.errors import LimitError
from dial.limits.journal import Journal, JournalInUse, Limits, Undo, within_of
from dial.limits.qdisc import remove_qdisc

_ENDS_WITHIN_S = 10.0


@contextmanager
def guarded(journal: str) -> Iterator[None]:
    """Have a guardian while the context lasts."""
    guardian = watch(journal)
    try:
        yield
    finally:
        if guardian.stdin is not None:
            guardian.stdin.close()
        try:
            guardian.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            guardian.kill()


def watch(journal: str) -> subprocess.Popen[bytes]:
    """Start the guardian of this process."""
    return subprocess.Popen(
        [sys.executable, "-m", "dial.limits.guardian", journal],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # A signal for the agent's terminal or process group is not for the guardian.
        start_new_session=True,
    )


def put_back(journal: Path, remove_qdisc: Undo, root: str = "/") -> list[str]:
    """Put back what a journal holds; returns what could not be.

    Raises
    ------
    LimitError
        If the journal is not ours, or somebody else uses it.
    """
    if not journal.exists():
        return []
    within = within_of(journal.read_text(encoding="utf-8", errors="replace"))
    opened = Journal(journal, Limits(within, root), remove_qdisc)
    try:
        return opened.undo()
    finally:
        opened.close()


def main() -> int:
    """Wait for the end of standard input, and put back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    try:
        complaints = put_back(Path(sys.argv[1]), remove_qdisc)
    except JournalInUse:
        return 0  # the next agent has put it back already
    except LimitError as error:
        complaints = [str(error)]
    for complaint in complaints:
        sys.stderr.write(f"dial agent's guardian: {complaint}\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
