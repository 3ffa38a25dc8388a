"""How long memory takes to come back: what a neighbour in the last-level cache does to it.

The problem: no counter of a guest tells of the cache it shares with strangers.  But memory
that was used a moment ago is still in that cache if nobody else wanted the room, and has to
come from DRAM if somebody did.  So a few hundred cache lines are loaded, left alone for 4 ms,
loaded again and timed, and at once loaded a third time::

    memory_reload_ns = median over chains of (second pass - third pass) / lines in a chain

What both passes have in common (the interpreter, the clock, a near hit) cancels out, and
what remains is the wait for a line that has left the nearest caches.

*Regimes.*  How long a line lives in the last level depends on how fast everybody else fills
it, strangers in the quiet state included, so the pause decides what is seen.  On two cores of
a shared host (Zen 4, 32 MiB of last level for all its guests), quiet against
``stress-ng --cache 1`` on the other core, medians in ns: 9 and 17 after 1 ms (all still
there), 33 and 100 after 2 ms, 73 and 136 after 5 ms, 133 and 138 after 30 ms (all gone either
way; a second would tell nothing).  After the 4 ms chosen, at 1 Hz on a VM at work: quiet 110
(a tenth of the readings below 45, a tenth above 140), beside the neighbour 194 (139 and 217);
of 59 quiet and 57 contended readings the contended one is the higher in 95 % of pairs.

*Lines that leave L2 by themselves.*  On processors of today the last level holds what the
second level drops.  A small set would stay in L2 on an idle core, and not meet the neighbour;
one larger than L2 would take from the tenant the very cache it looks at.  Hence one line from
each of many pages, all at the same place in the page: bits 6 to 11 of an address choose the
set in every cache before the last, so these lines compete with each other for 1/64 of L2 (of
1 MiB, 256 lines), drive each other out of it while they are loaded, and leave the other 63/64
to the tenant.  Which place is drawn, so that the agents of two VMs of one host seldom meet.

*Following them in C.*  A loop in Python spends 30 to 50 ns a step and hides misses of 15 ns;
``isinstance(None, ((((),),),))`` descends through nested tuples at under 10 ns a step, each
step waiting for the one before.  Which chain a tuple goes on top of is drawn, or a prefetcher
would find the stride.

*Time stolen meanwhile.*  The clock is that of the wall: the thread's CPU clock is a system
call, several times dearer, and does not leave out what a hypervisor steals either, except
where the kernel accounts for it.  A chain takes microseconds and a thief milliseconds, so
stolen time meets one or two chains of a reading, and the median passes over them.  A pause
that lasted too long is noticed, and its round is not counted.

*Cost.*  0.5 ms of CPU a reading in quiet, 0.7 ms beside the neighbour; by
``python -m benchmarks.agent`` 0.07 to 0.09 % of a core at 1 Hz with waking up three times more
a second, and 2 MiB of memory.  Whatever the machine, a
reading is followed by 500 times the CPU time it took before there is another one: that, not a
choice of size, keeps it below 0.2 % of a core at every interval and under every neighbour.
It is off by default (decision 52): no shipped model asks for it, because where requests are
counted their CPU time tells as much.  It is for who fits a model of their own.

*Limits.*  What is usual differs by processor and by host, so the figure means something only
beside the same VM's quiet past.  Work of the tenant itself that fills the cache counts as
well: telling the two apart is the classifier's.  An L2 of more than 1 MiB keeps more of the
lines back, and a far larger or emptier last level keeps them all for 4 ms: both weaken the
signal.  Where the VM's CPUs share no last level, a move of the thread from one to another
looks like a neighbour for one sample.

Source: timing one's own lines to see another's use of the cache is "prime and probe" (Osvik,
Shamir, Tromer: Cache Attacks and Countermeasures, CT-RSA 2006), here for one number, the level
of contention, and blind to whose and which lines they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from dial.agent.files import Unavailable
from dial.types import Measured, NoData

_log = logging.getLogger(__name__)

Chain = tuple[Any, ...]
"""Nested tuples of one member each, the innermost empty."""

DEPTH = 64
"""Tuples in a chain: well below the interpreter's limit of recursion, and enough that the
noise of reading the clock (some 20 ns) is little beside them."""

CHAINS = 8
"""8 x 64 = 512 lines: twice what a 1 MiB L2 holds at one place of a page.  They keep 2 MiB of
pages resident.  The first chain warms the path up and is not measured."""

AGE_S = 0.004
"""How long the lines are left alone: what a core that streams 8 GB/s needs to fill a
last-level cache of 32 MiB.  Of 1, 2 and 4 ms, 30 readings each on a VM at work, it tells quiet
from contended best: a contended reading is the higher one in 83, 85 and 98 % of pairs."""

_OLDEST_S = 1.5 * AGE_S
"""A round whose pause took longer is not counted: its lines had more time to be driven out,
and a neighbour on the CPU would look like one in the cache."""

ROUNDS = 3
"""In a reading: 0.7 ms of CPU beside a neighbour, a third of the bound, because a slower
processor is to keep to it at 1 Hz as well."""

MOST_OF_A_CORE = 0.002
"""CPU time of the readings by wall time; DIAL's bound for this probe."""

_LINE_BYTES = 64
_PAGE_BYTES = 4096
"""The unit in which addresses are mapped; with larger pages the places still repeat so."""

_READ_BYTES = 32
"""A visit reads type, size and member of a tuple: bytes 8 to 32 of it."""

_MOST_TUPLES = 500_000
"""Made while looking for some at the right place; one in 85 is (48 bytes each)."""

_COARSEST_NS = 10.0
"""Per line: a clock of steps as long as the shortest wait it is to measure (a last-level
cache: 10 to 20 ns) would tell nothing.  Two readings in a row are 90 ns apart, 1.4 ns a line,
on a clock that the kernel lets processes read; one that takes a system call in an emulated
kernel is 20,000 ns."""

_FEWEST_READINGS = 200
_MOST_READINGS = 1_000_000
"""Of the clock when it is checked: enough for the interpreter to be warm, and an end."""


def scattered_chains(chains: int, depth: int, place: int, random: Random) -> list[Chain]:
    """Make chains whose every tuple lies in another page, at the same line of it.

    Parameters
    ----------
    chains, depth
        How many, and of how many tuples each.
    place
        Which line of the page, 0 to 63.
    random
        Draws the order.

    Raises
    ------
    Unavailable
        If this interpreter's allocator gives no such addresses.
    """
    order = list(range(chains)) * depth
    random.shuffle(order)
    tops: list[Chain] = [()] * chains
    # An object that was not kept would be given out again at the same address.
    passed_over = []
    for number in order:
        while True:
            made: Chain = (tops[number],)
            if 0 <= id(made) % _PAGE_BYTES - place * _LINE_BYTES <= _LINE_BYTES - _READ_BYTES:
                break
            passed_over.append(made)
            if len(passed_over) > _MOST_TUPLES:
                raise Unavailable("this interpreter places objects where they cannot be probed")
        tops[number] = made
    random.shuffle(tops)
    return tops


class MemoryReload:
    """Loads its lines, leaves them alone for a while, and says how long they take to come back.

    Parameters
    ----------
    chains
        Of :data:`DEPTH` tuples each; the first is loaded for the interpreter's sake only.
    clock_ns
        Wall time that never steps, :func:`time.perf_counter_ns`.
    cpu_time_ns
        CPU time of the calling thread, :func:`time.thread_time_ns`.
    sleep
        Gives the CPU away for so many seconds, :func:`time.sleep`.
    """

    metrics = ("memory_reload_ns",)

    def __init__(
        self,
        chains: Sequence[Chain],
        clock_ns: Callable[[], int],
        cpu_time_ns: Callable[[], int],
        sleep: Callable[[float], None],
    ) -> None:
        self._chains = chains
        self._clock_ns = clock_ns
        self._cpu_time_ns = cpu_time_ns
        self._sleep = sleep
        self._rested_ns: float | None = None
        self.cost_ns = 0
        """CPU time of the last reading."""

    def read(self) -> Measured:
        """Return the wait for a line that was last used :data:`AGE_S` ago, ns.

        Takes ``ROUNDS * AGE_S``, nearly all of it asleep.
        """
        start_ns = self._clock_ns()
        if self._rested_ns is not None and start_ns < self._rested_ns:
            return NoData(
                f"the last reading took {self.cost_ns / 1e6:.3f} ms of CPU, and the probe "
                f"stays below {MOST_OF_A_CORE:.1%} of a core"
            )
        start_cpu_ns = self._cpu_time_ns()
        waits_ns = self._waits_ns()
        self.cost_ns = self._cpu_time_ns() - start_cpu_ns
        self._rested_ns = start_ns + self.cost_ns / MOST_OF_A_CORE
        if not waits_ns:
            return NoData(
                f"each of {ROUNDS} pauses of {AGE_S * 1e3:g} ms took more than "
                f"{_OLDEST_S * 1e3:g} ms: too little CPU to tell"
            )
        # Where nothing left the nearest caches the difference is noise of either sign.
        return max(0.0, sorted(waits_ns)[len(waits_ns) // 2] / DEPTH)

    def rates(
        self,
        before: Measured,  # noqa: ARG002 - the signature of every Collector
        after: Measured,
        interval_s: float,  # noqa: ARG002
    ) -> dict[str, Measured]:
        """Return the newer reading, which stands for itself."""
        return {"memory_reload_ns": after}

    def _waits_ns(self) -> list[int]:
        """Extra time of the first pass over each chain, in the rounds that were on time."""
        waits_ns = []
        for chain in self._chains:
            isinstance(None, chain)
        for _ in range(ROUNDS):
            left_ns = self._clock_ns()
            self._sleep(AGE_S)
            late = self._clock_ns() - left_ns > _OLDEST_S * 1e9
            round_ns = [self._wait_ns(chain) for chain in self._chains]
            if not late:
                waits_ns += round_ns[1:]
        return waits_ns

    def _wait_ns(self, chain: Chain) -> int:
        clock_ns = self._clock_ns
        first_ns = clock_ns()
        isinstance(None, chain)
        second_ns = clock_ns()
        isinstance(None, chain)
        return (second_ns - first_ns) - (clock_ns() - second_ns)


def check_clock(clock_ns: Callable[[], int]) -> None:
    """Compare the smallest step between two readings of ``clock_ns`` with what it is to time.

    What :func:`time.get_clock_info` says of the resolution is the unit, not the step.

    Raises
    ------
    Unavailable
        If it is too coarse, or too slow to read.
    """
    steps_ns = []
    last_ns = clock_ns()
    for reading in range(_MOST_READINGS):
        now_ns = clock_ns()
        if now_ns > last_ns:
            steps_ns.append(now_ns - last_ns)
        last_ns = now_ns
        if steps_ns and reading >= _FEWEST_READINGS:
            break
    step_ns = min(steps_ns, default=None)
    if step_ns is None:
        raise Unavailable("the clock does not advance")
    if step_ns > _COARSEST_NS * DEPTH:
        raise Unavailable(f"the clock's steps of {step_ns} ns hide the wait for {DEPTH} lines")


def calibrated(
    random: Random,
    interval_s: float,
    clock_ns: Callable[[], int],
    cpu_time_ns: Callable[[], int],
    sleep: Callable[[float], None],
) -> MemoryReload | NoData:
    """Build the probe, measure what it costs here, and say so in the log.

    Parameters
    ----------
    random
        Draws place and order of the lines.
    interval_s
        Between two samples, for the message only.
    clock_ns, cpu_time_ns, sleep
        As for :class:`MemoryReload`.

    Returns
    -------
    MemoryReload or NoData
        The reason where a reading would say nothing.
    """
    try:
        check_clock(clock_ns)
        place = random.randrange(_PAGE_BYTES // _LINE_BYTES)
        chains = scattered_chains(CHAINS, DEPTH, place, random)
    except Unavailable as error:
        _log.warning("memory probe: %s", error)
        return NoData(f"memory probe: {error}")
    probe = MemoryReload(chains, clock_ns, cpu_time_ns, sleep)
    probe.read()
    _log.info(
        "memory probe: %d lines, %.3f ms of CPU a reading, %.4f %% of a core at %g s",
        CHAINS * DEPTH,
        probe.cost_ns / 1e6,
        probe.cost_ns / 1e7 / interval_s,
        interval_s,
    )
    return probe
