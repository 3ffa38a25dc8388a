"""Control groups on v1, v2 and hybrid hosts, as far as the lab needs them.

A group of the lab has one *name* (``dial-lab.s1/fg``) and a directory in every hierarchy
that matters: the one that carries the ``cpu`` controller (quota, weight), on v1 hosts the
``cpuacct`` one (use), and v2 wherever it is mounted, because pressure files exist there
alone.  Everything below works on a file-system root that is handed in, so that the path
logic is tested on a fake tree.

A crash leaves groups and processes behind.  Both are found again by the name's prefix:
whoever is listed in ``cgroup.procs`` of a group of ours was put there by us, and nobody
else is ended.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from dial.agent.cgroups import parse_mountinfo
from dial.errors import LabError

PREFIX = "dial-lab."
"""First letters of every top-level group of the lab."""

_KILL_WAIT_S = 5.0
_LEAST_QUOTA_US = 1_000
"""The kernel refuses quotas below 1 ms (sched-bwc.rst)."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The hierarchies of one host that the lab uses.

    Attributes
    ----------
    cpu
        Where quota and weight are set.
    cpu_is_v2
        Whether that is v2, where both are spelt differently.
    others
        Further hierarchies in which a group of the same name is made.
    """

    cpu: Path
    cpu_is_v2: bool
    others: tuple[Path, ...]

    @property
    def roots(self) -> tuple[Path, ...]:
        """All hierarchies, the one with the cpu controller first."""
        return (self.cpu, *self.others)

    def create(self, name: str) -> None:
        """Make the group ``name`` in every hierarchy; its parents must be there.

        Raises
        ------
        LabError
            If the kernel refuses.
        """
        for root in self.roots:
            directory = root / name
            try:
                if self.cpu_is_v2 and root == self.cpu:
                    # A v2 group has a cpu controller only if its parent hands it down.
                    _write(directory.parent / "cgroup.subtree_control", "+cpu")
                directory.mkdir()
            except OSError as error:
                raise LabError(f"cgroup {directory}: {error.strerror}") from error

    def set_quota(self, name: str, quota_us: float, period_us: int) -> None:
        """Cap CPU time of ``name`` at ``quota_us`` in each ``period_us``.

        A quota below the kernel's least is written as the same fraction of a longer period.
        """
        stretch = max(1, -(-_LEAST_QUOTA_US // max(1, int(quota_us))))
        quota, period = round(quota_us * stretch), period_us * stretch
        directory = self.cpu / name
        if self.cpu_is_v2:
            _write(directory / "cpu.max", f"{quota} {period}")
        else:
            _write(directory / "cpu.cfs_period_us", str(period))
            _write(directory / "cpu.cfs_quota_us", str(quota))

    def lift_quota(self, name: str) -> None:
        """Let ``name`` use all the CPU time it can get."""
        if self.cpu_is_v2:
            _write(self.cpu / name / "cpu.max", "max")
        else:
            _write(self.cpu / name / "cpu.cfs_quota_us", "-1")

    def set_weight(self, name: str, times_default: float) -> None:
        """Set the weight of ``name`` among its siblings; 1 is the kernel's default."""
        directory = self.cpu / name
        if self.cpu_is_v2:
            _write(directory / "cpu.weight", str(min(10_000, round(100 * times_default))))
        else:
            _write(directory / "cpu.shares", str(min(262_144, round(1024 * times_default))))

    def set_idle(self, name: str) -> None:
        """Let ``name`` run only while nobody else wants its core (Linux 5.15 and newer).

        A small weight is not the same: whoever wakes up then waits for the next tick.
        """
        _write(self.cpu / name / "cpu.idle", "1")

    def create_idle(self, name: str) -> None:
        """Make a group of what runs only while nobody else wants its core.

        Raises
        ------
        LabError
            If the kernel refuses, as before Linux 5.15.
        """
        self.create(name)
        self.set_idle(name)

    def procs_files(self, name: str) -> tuple[Path, ...]:
        """The files into which a process writes its id to join ``name``."""
        return tuple(root / name / "cgroup.procs" for root in self.roots)

    def usage_file(self, name: str) -> Path:
        """Where the CPU time of ``name`` is counted: cpu.stat (v2) or cpuacct.usage (v1)."""
        if self.cpu_is_v2:
            return self.cpu / name / "cpu.stat"
        places = (root / name / "cpuacct.usage" for root in self.roots)
        return next((path for path in places if path.exists()), self.cpu / name / "cpuacct.usage")

    def usage_s(self, name: str) -> float:
        """CPU time that ``name`` has used since it was made, s."""
        file = self.usage_file(name)
        fields = file.read_text(encoding="utf-8").split()
        if file.name == "cpu.stat":
            return int(fields[fields.index("usage_usec") + 1]) / 1e6
        return int(fields[0]) / 1e9

    def stale(self) -> tuple[str, ...]:
        """Top-level groups of ours that exist now."""
        found = {
            entry.name
            for root in self.roots
            for entry in root.iterdir()
            if entry.name.startswith(PREFIX) and entry.is_dir()
        }
        return tuple(sorted(found))

    def remove(self, name: str) -> int:
        """End the processes in ``name`` and below, and remove the groups.

        Returns
        -------
        int
            How many processes had to be ended.

        Raises
        ------
        LabError
            If a group is still in use after five seconds.
        """
        ended: set[int] = set()
        for root in self.roots:
            for directory in _deepest_first(root / name):
                ended |= _empty(directory)
        return len(ended)


def find(mountinfo: str, root: Path = Path("/")) -> Cgroups:
    """Find the hierarchies to use in the text of ``/proc/self/mountinfo``.

    Parameters
    ----------
    mountinfo
        The file's text.
    root
        Put before every mount point; for tests.

    Raises
    ------
    LabError
        If no hierarchy has a cpu controller with quotas.
    """
    hierarchies = parse_mountinfo(mountinfo)

    def at(mount: str) -> Path:
        return root / mount.lstrip("/")

    v2 = at(hierarchies.v2) if hierarchies.v2 is not None else None
    if "cpu" in hierarchies.v1:
        cpu = at(hierarchies.v1["cpu"])
        if not (cpu / "cpu.shares").exists():
            raise LabError(f"{cpu}: mounted as the cpu controller, but holds no cpu.shares")
        use = at(hierarchies.v1.get("cpuacct", hierarchies.v1["cpu"]))
        # cpu and cpuacct are often one hierarchy under two names.
        # Bytes of disks are counted by group, too.
        blkio = at(hierarchies.v1["blkio"]) if "blkio" in hierarchies.v1 else None
        others = [path for path in (use, blkio, v2) if path is not None and not _same(path, cpu)]
        return Cgroups(cpu, False, tuple(others))
    if v2 is None:
        raise LabError(
            "no cgroup hierarchy is mounted; the lab needs the cpu controller of cgroup v1 or v2"
        )
    controllers = (v2 / "cgroup.controllers").read_text(encoding="ascii").split()
    if "cpu" not in controllers:
        raise LabError(
            f"{v2}/cgroup.controllers lists no cpu (only: {' '.join(controllers) or 'nothing'}); "
            "the lab needs the cpu controller of cgroup v1 or v2"
        )
    return Cgroups(v2, True, ())


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="ascii")
    except OSError as error:
        raise LabError(f"{path}: cannot write {text!r}: {error.strerror}") from error


def _deepest_first(top: Path) -> list[Path]:
    """``top`` and the groups below it, children before parents; empty if it is not there."""
    if not top.is_dir():
        return []
    found = [Path(directory) for directory, _, _ in os.walk(top)]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def _empty(directory: Path) -> set[int]:
    """Kill what runs in ``directory`` until the kernel lets it be removed."""
    ended: set[int] = set()
    give_up = time.monotonic() + _KILL_WAIT_S
    while True:
        members = {int(pid) for pid in (directory / "cgroup.procs").read_text().split()}
        for pid in members - {0}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        try:
            directory.rmdir()
        except OSError as error:
            # A killed process stays listed until its parent or init has reaped it.
            if time.monotonic() > give_up:
                raise LabError(f"cgroup {directory}: {error.strerror}, still in use") from error
            time.sleep(0.02)
        else:
            return ended
