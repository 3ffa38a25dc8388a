"""Which of the processes that write one page live, in whatever namespace they count themselves.

A pBox's place says its process's id as that process knows it; in a container that is not the id
by which the agent finds it, which may be nobody's here, or another's.  To those outside, the
kernel shows a process with all its ids, its own last (``NSpid`` of ``/proc/PID/status``, Linux
4.1), and the instant that it began at is the same for everybody.  So it is looked for by id
first, and where that fails once by a walk through /proc.

What cannot be seen from here (the agent itself is in a container) is not taken for crashed.
"""

from __future__ import annotations

from collections.abc import Collection

from dial.agent.files import Tree, Unavailable

Process = tuple[int, int]
"""Its id as itself knows it, and its start (field 22 of ``/proc/PID/stat``)."""


class Writers:
    """Looks processes up.

    Parameters
    ----------
    tree
        Where to read.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._found: dict[Process, str] = {}
        self._gone: set[Process] = set()

    def alive(self, processes: Collection[Process]) -> frozenset[Process]:
        """Return those that live.

        Raises
        ------
        Unavailable
            If there are some, and none of them is to be seen.
        """
        known = {each: id_here for each, id_here in self._found.items() if each in processes}
        found = {
            each: id_here for each, id_here in known.items() if self._began(id_here) == each[1]
        }
        # Who has gone never comes back: another one begins later.
        gone = (self._gone & set(processes)) | (known.keys() - found.keys())
        missing = set(processes) - found.keys() - gone
        at_once = {each: str(each[0]) for each in missing if self._began(str(each[0])) == each[1]}
        missing -= at_once.keys()
        walked = self._walk(missing) if missing else {}
        self._found = found | at_once | walked
        self._gone = gone | (missing - walked.keys())
        if processes and not self._found:
            raise Unavailable(
                "none of its processes is to be seen: they have crashed, or run in a container "
                "and this agent in another"
            )
        return frozenset(self._found)

    def _walk(self, missing: Collection[Process]) -> dict[Process, str]:
        """Those that are in a namespace of their own, with their ids here."""
        starts = {began for _, began in missing}
        found = {}
        for id_here in filter(str.isdecimal, self._tree.names("/proc")):
            if (began := self._began(id_here)) in starts:
                each = (self._innermost_id(id_here), began)
                if each in missing:
                    found[each] = id_here
        return found

    def _began(self, id_here: str) -> int:
        """When a process began, in clock ticks since the machine did; -1 without it."""
        try:
            stat = self._tree.read(f"/proc/{id_here}/stat")
        except Unavailable:
            return -1
        # The second field is the program's name in brackets, which may hold blanks and brackets.
        fields = stat.rpartition(")")[2].split()
        return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() else -1

    def _innermost_id(self, id_here: str) -> int:
        try:
            status = self._tree.read(f"/proc/{id_here}/status")
        except Unavailable:
            return -1
        ids = status.partition("\nNSpid:")[2].partition("\n")[0].split()
        return int(ids[-1]) if ids and ids[-1].isdecimal() else -1
