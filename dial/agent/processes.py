"""Which processes are the application's, as the admin named them.

By number, by the file a service manager writes its number to, or by name.  Numbers and
names change hands when the application restarts, so files are read at each reading, and
names are looked up again when a process has gone and otherwise every ten readings: a walk
through /proc opens one file for each process of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from dial.agent.counters import parse_count
from dial.agent.files import Tree, Unavailable

_RESCAN_EVERY = 10
"""Readings between two walks through /proc: at 1 Hz a new worker is seen within 10 s."""

_COMM_LENGTH = 15
"""TASK_COMM_LEN - 1: the kernel keeps this much of a process's name."""


class Processes:
    """The application's processes.

    Parameters
    ----------
    tree
        Where to read.
    pids, pid_files, names
        What the admin gave; a process may be found by any of them.
    """

    def __init__(
        self,
        tree: Tree,
        pids: Sequence[int] = (),
        pid_files: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> None:
        self._tree = tree
        self._pids = frozenset(pids)
        self._pid_files = tuple(pid_files)
        self._names = frozenset(name[:_COMM_LENGTH] for name in names)
        self._named: frozenset[int] = frozenset()
        self._readings = 0

    def members(self) -> list[int]:
        """Return the ids of the processes there are now, lowest first.

        Raises
        ------
        Unavailable
            If there is none; the message says what was looked for.
        """
        found = {pid for pid in self._pids if self._tree.exists(f"/proc/{pid}")}
        troubles = [f"no process {pid}" for pid in sorted(self._pids - found)]
        for path in self._pid_files:
            try:
                pid = parse_count(self._tree.read(path).strip(), path)
            except Unavailable as error:
                troubles.append(str(error))
                continue
            if self._tree.exists(f"/proc/{pid}"):
                found.add(pid)
            else:
                troubles.append(f"{path}: no process {pid}")
        if self._names:
            named = self._by_name()
            found |= named
            if not named:
                troubles.append(f"no process named {' or '.join(sorted(self._names))}")
        if not found:
            raise Unavailable("; ".join(troubles))
        return sorted(found)

    def _by_name(self) -> frozenset[int]:
        due = self._readings % _RESCAN_EVERY == 0
        self._readings += 1
        if due or not self._named or not all(self._is_named(pid) for pid in self._named):
            numbers = (name for name in self._tree.names("/proc") if name.isdecimal())
            self._named = frozenset(pid for pid in map(int, numbers) if self._is_named(pid))
        return self._named

    def _is_named(self, pid: int) -> bool:
        try:
            return self._tree.read(f"/proc/{pid}/comm").rstrip("\n") in self._names
        except Unavailable:
            return False
