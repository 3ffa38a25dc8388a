"""What was there before: written down before it is changed, put back whatever happens.

Before the first change of a file the text that brings the old limit back goes into the journal
and to the disk.  A clean exit puts everything back, and so does whoever finds the journal later:
the guardian when the agent was killed (:mod:`~dial.limits.guardian`), or the next agent.

A line is JSON, and a line cut short by a crash is one whose change was never made, for the
change waits for the line::

    {"format": "dial-partition-journal/1", "within": ["/sys/fs/cgroup/services"]}
    {"writes": [["/sys/fs/cgroup/services/web/cpu.max", "max 100000"]]}
    {"qdisc": "eth0"}

Whoever puts back writes below ``within`` only, and no file twice for two agents: the journal is
locked for as long as somebody uses it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from dial.agent.cgroups import Hierarchies
from dial.errors import LimitError
from dial.limits.knobs import Write

FORMAT = "dial-partition-journal/1"

_LOCK_WAIT_S = 5.0
_LOCK_POLL_S = 0.05

Undo = Callable[[str], None]
"""Takes a network device, and removes our root qdisc from it."""


class JournalInUse(LimitError):
    """Another process has the journal open."""


class Limits:
    """Writes limits below some directories, and nowhere else.

    Parameters
    ----------
    within
        Directories of the configured subtree, one a hierarchy.
    root
        Takes the place of ``/``, for tests.
    """

    def __init__(self, within: Sequence[str], root: str = "/") -> None:
        self.within = tuple(within)
        self._root = root.rstrip("/")

    @classmethod
    def below(cls, hierarchies: Hierarchies, subtree: str, root: str = "/") -> Limits:
        """Limits of one subtree, in every hierarchy."""
        mounts = {*hierarchies.v1.values()} | ({hierarchies.v2} if hierarchies.v2 else set())
        return cls(sorted(f"{mount}/{subtree}" for mount in mounts), root)

    def check(self, write: Write) -> None:
        """Refuse a file outside of the subtree.

        Raises
        ------
        LimitError
            With the file's name.
        """
        path = PurePosixPath(write.path)
        inside = any(
            path.is_relative_to(directory) and path.parent != PurePosixPath(directory)
            for directory in self.within
        )
        if not inside or ".." in path.parts or not write.path.isprintable():
            raise LimitError(f"{write.path!r}: outside of {self.within}; never written")
        if not (write.text.isascii() and write.text.isprintable()):
            raise LimitError(f"{write.path}: {write.text!r} is no limit; never written")

    def write(self, write: Write) -> None:
        """Write one limit.

        Raises
        ------
        LimitError
            If the file is outside of the subtree, or the kernel refuses.
        FileNotFoundError
            If the group is gone.
        """
        self.check(write)
        try:
            # Not Path.write_text: a regular file must never come into being here.
            descriptor = os.open(self._root + write.path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(descriptor, write.text.encode("ascii"))
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LimitError(
                f"{write.path}: cannot write {write.text!r}: {error.strerror}"
            ) from error


class Journal:
    """The open journal of one agent; :meth:`undo` what an earlier one left, before anything.

    Parameters
    ----------
    path
        Of the file; made where there is none.
    limits
        Writes what is put back.
    remove_qdisc
        See :data:`Undo`.
    wait_s
        How long to wait for another one to let go of it: a guardian at work takes a moment.

    Raises
    ------
    JournalInUse
        If another agent uses it.
    LimitError
        If the file cannot be opened.
    """

    def __init__(
        self, path: Path, limits: Limits, remove_qdisc: Undo, wait_s: float = _LOCK_WAIT_S
    ) -> None:
        self._limits = limits
        self._remove_qdisc = remove_qdisc
        self._path = path
        try:
            self._descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise LimitError(f"{path}: {error.strerror}") from error
        if not _locked(self._descriptor, wait_s):
            os.close(self._descriptor)
            raise JournalInUse(f"{path}: another agent uses this journal")

    @classmethod
    def emptied(cls, path: Path, limits: Limits, remove_qdisc: Undo) -> Journal:
        """Open a journal, put back what an earlier agent left behind, and begin anew.

        Raises
        ------
        LimitError
            If it cannot be opened, or something cannot be put back.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LimitError(f"{path.parent}: {error.strerror}") from error
        journal = cls(path, limits, remove_qdisc)
        try:
            complaints = journal.undo()
        except LimitError:
            journal.close()
            raise
        if complaints:
            journal.close()
            raise LimitError(f"an earlier agent's limits are still there: {complaints[0]}")
        journal.begin()
        return journal

    def begin(self) -> None:
        """Write the first line; the journal is empty."""
        self._append({"format": FORMAT, "within": list(self._limits.within)})

    def record(self, writes: Sequence[Write]) -> None:
        """Remember what brings a limit back; on the disk when this returns."""
        for write in writes:
            self._limits.check(write)
        self._append({"writes": [[write.path, write.text] for write in writes]})

    def record_qdisc(self, device: str) -> None:
        """Remember that ``device`` is about to get a root qdisc of ours."""
        self._append({"qdisc": device})

    def undo(self) -> list[str]:
        """Put everything back, newest first, and empty the journal.

        Returns
        -------
        list of str
            What could not be put back.  It stays in the journal.
        """
        entries = entries_of(self.text())
        failed, complaints = [], []
        for entry in reversed(entries):
            try:
                self._put_back(entry)
            except LimitError as error:
                failed.append(entry)
                complaints.append(str(error))
        os.ftruncate(self._descriptor, 0)
        if failed:
            self.begin()
            for entry in reversed(failed):
                self._append(entry)
        return complaints

    def text(self) -> str:
        """All of it."""
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size, 0).decode("utf-8", "replace")

    def close(self) -> None:
        """Let go of the file.  It stays: somebody may be waiting for its lock."""
        os.close(self._descriptor)

    def _append(self, entry: object) -> None:
        line = json.dumps(entry, separators=(",", ":")) + "\n"
        try:
            os.write(self._descriptor, line.encode())
            os.fsync(self._descriptor)
        except OSError as error:
            raise LimitError(f"{self._path}: {error.strerror}") from error

    def _put_back(self, entry: dict[str, object]) -> None:
        if isinstance(device := entry.get("qdisc"), str):
            if device.startswith("-") or not device.isprintable():
                raise LimitError(f"the journal has {device!r}, which is no network device")
            self._remove_qdisc(device)
            return
        for write in _writes_of(entry):
            try:
                self._limits.write(write)
            except FileNotFoundError:
                continue  # the group has gone, and its limit with it


def _locked(descriptor: int, wait_s: float) -> bool:
    give_up_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_s:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True


def entries_of(text: str) -> list[dict[str, object]]:
    """Return the entries of a journal without its first line; a last line cut short is none.

    Raises
    ------
    LimitError
        If it is not a journal of ours.
    """
    lines = text.split("\n")[:-1]
    if not lines:
        return []
    try:
        entries = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        entries = [None]
    first = entries[0]
    if not all(isinstance(entry, dict) for entry in entries) or first.get("format") != FORMAT:
        raise LimitError(f"the journal is none of {FORMAT}; nothing was put back")
    return entries[1:]


def within_of(text: str) -> tuple[str, ...]:
    """Return the directories that a journal's first line names; raises as :func:`entries_of`."""
    if not entries_of(text) and "\n" not in text:
        return ()
    within = json.loads(text.partition("\n")[0]).get("within")
    if not (isinstance(within, list) and all(isinstance(place, str) for place in within)):
        raise LimitError(f"the journal is none of {FORMAT}: it names no directories")
    return tuple(within)


def _writes_of(entry: dict[str, object]) -> list[Write]:
    writes = entry.get("writes")
    if not isinstance(writes, list):
        raise LimitError("the journal has an entry that is neither writes nor a qdisc")
    found = []
    for item in writes:
        if not (isinstance(item, list) and [type(part) for part in item] == [str, str]):
            raise LimitError("the journal has a write that is no pair of texts")
        found.append(Write(item[0], item[1]))
    return found
