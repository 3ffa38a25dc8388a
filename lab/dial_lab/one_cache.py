"""Whether a neighbour on another core than its victim is there, and nobody else at both of them.

While a hypervisor has put the two cores at different last-level caches nothing that the neighbour
does reaches its victim, however busy it is.  A program keeps them together and measures whether
they are (:mod:`dial_lab.two_cores`).  Of a minute in which nothing kept them they were apart for 1
to 35 of 100 moments, for 0.2 to 10 s at a time, more when both had much to do.  A chain through 3.5
MiB took, beside ``stress-ng --memrate`` on the other core, 128 to 142 ns a load (medians of three
times 28 s) in the moments in which they were together and 17, 17 and 51 when they were apart; alone
19 to 22.

Nor does it say much of a policy while somebody outside the lab slows the two cores themselves, as
who has the second threads of the same two does.  Then, too, a line takes longer from one to the
other.  Of 46 blocks of 15 s four had more than 18 ns for 42 to 67 % of the time, the others for 24
at most (medians of 17 to 21 and of 11 to 16 ns), whatever the policy and however long its queues.
In one of the four machines that had served 144 requests a second served 80 with all of their CPU
time: more arrived than all of them could serve, and P90 was 3.4 s beside 19 to 102 ms.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dial.errors import LabError, LabUnquiet
from dial_lab.processes import Children
from dial_lab.resources.base import Resource
from dial_lab.topology import RESTLESS, Machine
from dial_lab.two_cores import APART_NS

MOST_APART = 0.1
"""Part of a neighbour's time: what it takes is off by as much, and less than what is measured."""

SLOW_NS = 18.0
"""A line's way from which on the cores are slow, if they are not apart: see the module."""

MOST_SLOW = 0.3
"""Part of a time: see the module."""

_SILENT_S = 2.0
"""Longer than that nothing may be measured: the program has ended, or never got its core."""

LOOK_S = 3.0
"""A dozen measures of cores that do nothing else."""

FIRST_S = 5.0
"""Of a neighbour's time, in which a controller is to notice it: it has to be there as much."""


@dataclass(frozen=True, slots=True)
class Apart:
    """For how long two cores had no cache in common.

    Attributes
    ----------
    part
        Of the time looked at, 0 to 1.
    at_first
        Of its first :data:`FIRST_S`.
    slow
        Part of the time looked at in which they had one, and were slow.
    """

    part: float
    at_first: float
    slow: float = 0.0

    def __str__(self) -> str:
        if self.disturbed:
            return (
                f"for {self.slow:.0%} of the time a line took {SLOW_NS:g} ns and more "
                f"from one of this computer's cores to the other, {MOST_SLOW:.0%} are let pass: "
                "somebody outside the lab slows them"
            )
        return (
            f"for {self.part:.0%} of the neighbour's time and {self.at_first:.0%} of its first "
            f"{FIRST_S:g} s this computer's cores had no last-level cache in common, so that "
            "nobody was there"
        )

    @property
    def worst(self) -> float:
        """The larger of the two."""
        return max(self.part, self.at_first)

    @property
    def much(self) -> bool:
        """Whether what is measured meanwhile says little of a neighbour in the cache."""
        return self.worst > MOST_APART

    @property
    def disturbed(self) -> bool:
        """Whether somebody else had the cores."""
        return self.slow > MOST_SLOW


def apart(ways: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> Apart:
    """What was measured from ``begin_s`` to ``end_s``.

    Parameters
    ----------
    ways
        Moments, s, and how long a line took from core to core at each, ns; in order.
    begin_s, end_s
        Of the same clock.

    Raises
    ------
    LabError
        If nothing was measured in a part of that time.

    Examples
    --------
    >>> apart([(0.0, 15.0), (0.5, 120.0), (1.0, 120.0), (1.5, 15.0)], 0.0, 2.0)
    Apart(part=0.5, at_first=0.5, slow=0.0)
    """
    first_s = min(end_s, begin_s + FIRST_S)
    return Apart(
        _part(ways, begin_s, end_s, APART_NS),
        _part(ways, begin_s, first_s, APART_NS),
        _part(ways, begin_s, end_s, SLOW_NS, below_ns=APART_NS),
    )


def _part(
    ways: Sequence[tuple[float, float]],
    begin_s: float,
    end_s: float,
    from_ns: float,
    below_ns: float = math.inf,
) -> float:
    """Of a time, that in which a line took so long."""
    inside = [(at_s, ns) for at_s, ns in ways if begin_s <= at_s < end_s]
    moments_s = [*(at_s for at_s, _ in inside), end_s]
    gaps_s = [later_s - at_s for at_s, later_s in itertools.pairwise(moments_s)]
    if not inside or max(inside[0][0] - begin_s, *gaps_s) > _SILENT_S:
        raise LabError(
            "llc: whether the cores have a cache in common was not measured all the time"
        )
    such_s = sum(
        gap_s for (_, ns), gap_s in zip(inside, gaps_s, strict=True) if from_ns <= ns < below_ns
    )
    return such_s / (end_s - inside[0][0])


class Watch:
    """What is measured of two cores while a program of its own does that.

    Parameters
    ----------
    out
        What the program writes.
    """

    def __init__(self, out: Path) -> None:
        self._out = out

    def apart(self, begin_s: float, end_s: float) -> Apart:
        """For how long the cores were apart between two moments of :func:`time.monotonic`.

        Raises
        ------
        LabError
            If the program wrote nothing of a part of that time.
        """
        # The last line may be half written.
        lines = self._out.read_text(encoding="ascii").split("\n")[:-1]
        ways = [(float(at_s), float(ns)) for at_s, ns in map(str.split, lines)]
        return apart(ways, begin_s, end_s)

    def require_quick(self, begin_s: float, end_s: float) -> Apart:
        """See :attr:`Apart.disturbed`; what was found is returned.

        Raises
        ------
        LabUnquiet
            If the cores were slow too long between two moments of :func:`time.monotonic`.
        LabError
            As :meth:`apart`.
        """
        found = self.apart(begin_s, end_s)
        if found.disturbed:
            raise LabUnquiet(f"llc: {found}")
        return found

    def require_together(self, begin_s: float, end_s: float) -> None:
        """See :attr:`Apart.much` and :attr:`Apart.disturbed`.

        Raises
        ------
        LabUnquiet
            If the cores were apart or slow too long between two moments of :func:`time.monotonic`.
        LabError
            As :meth:`apart`.
        """
        found = self.require_quick(begin_s, end_s)
        if found.much:
            raise LabUnquiet(f"llc: {found}; {MOST_APART:.0%} of each are let pass")


@contextmanager
def watching(children: Children, resource: Resource, machine: Machine) -> Iterator[Watch | None]:
    """Keep the machine's core and its neighbour's together for the time of the ``with``.

    ``None`` where a neighbour is on the machine's own core.  What is measured is in
    ``cores-ONE-OTHER.txt`` beside the children's logs.
    """
    if not resource.victim_apart:
        yield None
        return
    one, other = machine.other_cores[-1], machine.core
    name = f"cores-{one}-{other}"
    out = children.log_dir / f"{name}.txt"
    out.write_bytes(b"")
    argv = [sys.executable, "-m", "dial_lab.two_cores", f"--cores={one},{other}", f"--out={out}"]
    argv += [f"--restless={path}" for path in machine.cgroups.procs_files(RESTLESS)]
    program = children.start(name, argv)
    try:
        yield Watch(out)
    finally:
        children.stop(program)


def require_quick(resource: Resource, machine: Machine) -> None:
    """That nobody outside the lab slows a machine's core and its neighbour's just now.

    Takes three seconds, and none where a neighbour is on the machine's own core.

    Raises
    ------
    LabUnquiet
        If somebody does.
    LabError
        If it cannot be measured.
    """
    with (
        TemporaryDirectory(prefix="dial-lab-") as logs,
        Children(Path(logs)) as children,
        watching(children, resource, machine) as watch,
    ):
        if watch is None:
            return
        begin_s = time.monotonic()
        time.sleep(LOOK_S)
        children.check()
        watch.require_quick(begin_s, time.monotonic())
