"""Machines that do the same work on a slow core as on a quick one: they are given more of it.

The problem: a virtual core is one thread of a core, and the other thread may be somebody else's.
While it runs, everything takes up to 1.8 times as long, and that changes within seconds.  Requests
of the lab's own application are CPU *time* and do not notice.  Those of a real application are
work: at half of the load and 1.3 times the work P90 is twice what it was, and two policies that
were measured one after another say nothing of each other.

The formula: where work takes s times what it took in 20 seconds before the run, as a mean
(:mod:`dial_lab.restless`), a machine has

    C(t) = C min(mean of s from t - 1 s to t, 1.35)    cores, and its neighbour rho_bg C(t),

so that it does the same work all the time.  How much that is matters less: it is calibrated.
Quotas are written twice a second.  Machines of C = 0.24 fit three on a core with that
(:data:`dial_lab.topology.WORK_CORES`), and something of it is left, in which s is measured.

What it does not do: what changes within a second stays, as work that varies more, and so does what
is beyond 1.35.  What is left over a block is :meth:`Steady.slowdown`, and blocks of which much is
left do not count (:mod:`dial_lab.undisturbed`).  Each time that a quota is written the kernel fills
it up: a few percent of it at this pace, always the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from dial.errors import LabError
from dial_lab.restless import Restless, mean_times
from dial_lab.topology import Machine

MOST_TIMES = 1.35
"""Three machines of 0.24 have 0.97 of a core then."""

EVERY_S = 0.5
_LATELY_S = 1.0
LOOK_S = 20.0
"""The mean, and not what was quickest: of 20 minutes that is known at their end only, and a minute
of them may have no quick moment at all."""
_USUAL_S = 60.0
"""Whoever asks what a machine usually has asks before a block, of 15 s or more."""


class Steady:
    """What machines were given, and what of their cores' slowness was left.

    Parameters
    ----------
    machines
        Which.
    awake
        Knows what work takes on their cores.
    usual_ns
        What it takes where a machine has what it was built with.
    """

    def __init__(self, machines: Sequence[Machine], awake: Restless, usual_ns: float) -> None:
        self._machines = machines
        self._awake = awake
        self._usual_ns = usual_ns
        self.failed: LabError | None = None
        """Why it gives no more, if it does not."""
        self._given: dict[int, list[tuple[float, float]]] = {each.core: [] for each in machines}

    def give(self, now_s: float) -> None:
        """Give each machine of its core what it needs at ``now_s`` of :func:`time.monotonic`."""
        for core, given in self._given.items():
            took = self._work_took(core, now_s - _LATELY_S, now_s)
            if took is None:
                continue
            times = min(took, MOST_TIMES)
            given.append((now_s, times))
            usual = fmean(each for at_s, each in given if at_s > now_s - _USUAL_S)
            for machine in self._machines:
                if machine.core == core:
                    machine.given.usual_times = usual
                    machine.give(times)

    def slowdown(self, begin_s: float, end_s: float) -> float | None:
        """How many times as long work took between two moments, over what was given for it.

        On the core where that is most; ``None`` where nobody knows.

        Raises
        ------
        LabError
            If it gives no more.
        """
        if self.failed is not None:
            raise self.failed
        found = []
        for core, given in self._given.items():
            took = self._work_took(core, begin_s, end_s)
            times = [each for at_s, each in given if begin_s <= at_s < end_s]
            if took is None or not times:
                return None
            found.append(took / fmean(times))
        return max(found, default=None)

    def _work_took(self, core: int, begin_s: float, end_s: float) -> float | None:
        """How many times as long; ``None`` where the core had something else to do."""
        took_ns = self._awake.took_ns(core, begin_s, end_s)
        return mean_times(took_ns, self._usual_ns) if took_ns else None


@contextmanager
def kept(machines: Sequence[Machine], awake: Restless) -> Iterator[Steady]:
    """Give twice a second, in a thread of its own, until the end; looks at the cores first.

    Raises
    ------
    LabError
        If all of their time is somebody else's.
    """
    began_s = time.monotonic()
    time.sleep(LOOK_S)
    cores = {each.core for each in machines}
    now_s = time.monotonic()
    took_ns = [ns for core in cores for ns in awake.took_ns(core, began_s, now_s)]
    if not took_ns:
        raise LabError(f"the machines' cores had no time for anything else in {LOOK_S:g} s")
    quickest_ns = min(took_ns)
    usual_ns = quickest_ns * mean_times(took_ns, quickest_ns)
    steady, ended = Steady(machines, awake, usual_ns), threading.Event()

    def give() -> None:
        try:
            while not ended.wait(EVERY_S):
                steady.give(time.monotonic())
        except (LabError, OSError, ValueError) as error:
            steady.failed = LabError(f"giving machines more of a slow core: {error}")

    thread = threading.Thread(target=give, name="steady")
    thread.start()
    try:
        yield steady
    finally:
        ended.set()
        thread.join()
