"""Where a cgroup's files are: v1, v2, or both at once.

Mount points differ between distributions, containers and emulations, so they come from
``/proc/self/mountinfo`` and are never assumed.  On a hybrid host a controller is in the
v1 hierarchy that carries its name, and only those without one are in v2; pressure files
exist in v2 alone, whatever controllers it has.  A group's name is its path below the root
of each hierarchy, and is expected to be the same in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dial.agent.counters import parse_count
from dial.agent.files import Tree, Unavailable, Vanished

MOUNTINFO = "/proc/self/mountinfo"

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Mount points: v1 by controller, and that of v2 where it is mounted."""

    v1: Mapping[str, str]
    v2: str | None


def parse_mountinfo(text: str) -> Hierarchies:
    """Find the cgroup hierarchies; lines that are no mounts are passed over.

    A line reads ``id parent dev root MOUNTPOINT options [tags...] - TYPE source OPTIONS``,
    and the options of a v1 mount name its controllers (proc_pid_mountinfo(5)).  Of several
    mounts of one hierarchy the first counts.
    """
    v1: dict[str, str] = {}
    v2: str | None = None
    for line in text.splitlines():
        mount, found, kind = line.partition(" - ")
        places, kinds = mount.split(), kind.split()
        if not found or len(places) < 5 or len(kinds) < 3:
            continue
        # Blanks and backslashes in paths are written as octal escapes.
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), places[4]).rstrip("/")
        if kinds[0] == "cgroup2":
            v2 = point if v2 is None else v2
        elif kinds[0] == "cgroup":
            for controller in kinds[2].split(","):
                v1.setdefault(controller, point)
    return Hierarchies(v1, v2)


@dataclass(frozen=True, slots=True)
class Group:
    """One cgroup by name, in every hierarchy there is."""

    hierarchies: Hierarchies
    name: str
    """Path below the root of each hierarchy, without slashes at its ends."""

    def v1(self, controller: str) -> str | None:
        """Directory in the v1 hierarchy of ``controller``, if that is mounted as v1."""
        mount = self.hierarchies.v1.get(controller)
        return None if mount is None else f"{mount}/{self.name}"

    def v2(self) -> str | None:
        """Directory in the v2 hierarchy, if one is mounted."""
        mount = self.hierarchies.v2
        return None if mount is None else f"{mount}/{self.name}"

    def members(self, tree: Tree) -> list[int]:
        """Process ids in the group and all groups below it, lowest first.

        ``cgroup.procs`` lists direct members only while CPU time counts descendants, so
        the groups below are walked.

        Raises
        ------
        Unavailable
            If the group is not there, or holds no process.
        """
        directory = self.v1("cpu") or self.v2()
        if directory is None:
            raise Unavailable("no cgroup hierarchy with the cpu controller is mounted")
        pids = sorted(_members_below(tree, directory))
        if not pids:
            raise Unavailable(f"{directory}/cgroup.procs: no process in this group")
        return pids


def _members_below(tree: Tree, directory: str) -> set[int]:
    where = f"{directory}/cgroup.procs"
    pids = {parse_count(line, where) for line in tree.read(where).splitlines()}
    # 0 stands for a process outside the reader's pid namespace: nothing of it can be read.
    pids.discard(0)
    for name in tree.directories(directory):
        try:
            pids |= _members_below(tree, f"{directory}/{name}")
        except Vanished:
            continue
    return pids
