"""What an interrupt costs around its softirq, by CPU.

Problem
    A softirq is timed from its first instruction to its last.  The interrupt that brought it,
    and in a VM what the hypervisor does to deliver that, come before, and are booked to whoever
    was interrupted.  In the lab that was 15 us for each softirq of 8: left out, who is
    interrupted gets back a third of what it lost.

Formula
    A timer tick that falls into an interrupt is taken when interrupts are let in again, which is
    in the softirq.  So ``/proc/stat`` books the whole of it to softirqs, in ticks of 10 ms, and

        cost per softirq = (ticks - timed) / softirqs,

    sums fading over two seconds: half a second of ticks says next to nothing.

Regimes
    softirqs without an interrupt
        The loopback, and a sender's own core: what is timed is all there is.
    few softirqs
        Nothing is learnt of a CPU that had less than :data:`LEAST_RUNS` of late.

Source
    Own.  Iron's kernel charges what it times (3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_FADE = 0.9
"""Of the past in each period of 0.2 s."""

LEAST_RUNS = 1_000.0
"""Fewer cost nobody anything: 15 ms in two seconds."""

_TICK_NS = 10_000_000
"""USER_HZ, the unit of ``/proc/stat``."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Fading sums by CPU.

    Attributes
    ----------
    hidden_ns
        Ticks less what was timed.
    runs
        Softirqs.
    """

    hidden_ns: tuple[float, ...] = ()
    runs: tuple[float, ...] = ()

    def learn(
        self, ticks_ns: Sequence[int], timed_ns: Sequence[int], runs: Sequence[int]
    ) -> Overhead:
        """Add one period, by CPU."""
        past = (
            self if len(self.runs) == len(runs) else Overhead((0.0,) * len(runs), (0,) * len(runs))
        )
        return Overhead(
            tuple(
                sum_ns * _FADE + ticks - timed
                for sum_ns, ticks, timed in zip(past.hidden_ns, ticks_ns, timed_ns, strict=True)
            ),
            tuple(
                sum_runs * _FADE + count for sum_runs, count in zip(past.runs, runs, strict=True)
            ),
        )

    def per_run_ns(self) -> tuple[float, ...]:
        """What to add for each softirq, by CPU.

        Examples
        --------
        >>> Overhead().learn([20_000_000], [5_000_000], [1_500]).per_run_ns()
        (10000.0,)
        """
        return tuple(
            max(0.0, hidden_ns) / runs if runs >= LEAST_RUNS else 0.0
            for hidden_ns, runs in zip(self.hidden_ns, self.runs, strict=True)
        )


def parse_softirq_ns(text: str, cpus: int) -> tuple[int, ...]:
    r"""Return time in interrupts and softirqs by CPU from ``/proc/stat``; 0 of one that is off.

    Examples
    --------
    >>> parse_softirq_ns("cpu 9 0 0 0 0 9 9 0\ncpu1 0 0 0 0 0 1 2 0\n", 2)
    (0, 30000000)
    """
    found = [0] * cpus
    for line in text.splitlines():
        name, *fields = line.split(" ")
        number = name[3:]
        if name.startswith("cpu") and number.isdigit() and int(number) < cpus and len(fields) > 6:
            found[int(number)] = (int(fields[5]) + int(fields[6])) * _TICK_NS
    return tuple(found)
