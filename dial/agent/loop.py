"""Sampling at a steady pace.

Deadlines are multiples of the interval after the start, on a clock that never steps, so
that the time a sample takes does not add up.  After a pause (a VM that was stopped, a
starved CPU) the missed deadlines are skipped: one long sample says what happened, a burst
of short ones would not.

The start itself is put off by a random part of an interval.  Agents of VMs that are made or
restarted together would otherwise sample together for ever: all servers of a service lose the
same milliseconds, and the balancer has nowhere to send what waits (ADR 73).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dial.agent.sampler import Sampler
from dial.types import AgentSample


def next_deadline_s(start_s: float, interval_s: float, now_s: float) -> float:
    """Return the first deadline after ``now_s``.

    Examples
    --------
    >>> next_deadline_s(10.0, 1.0, 10.2)
    11.0
    >>> next_deadline_s(10.0, 1.0, 14.5)
    15.0
    """
    return start_s + (math.floor((now_s - start_s) / interval_s) + 1) * interval_s


def run(
    sampler: Sampler,
    deliver: Callable[[AgentSample], None],
    interval_s: float,
    monotonic_s: Callable[[], float],
    stopped: Callable[[float], bool],
    *,
    phase: float,
) -> None:
    """Take a sample an interval until told to stop.

    Parameters
    ----------
    sampler
        Takes the samples.
    deliver
        Is given each; must not block.
    interval_s
        Seconds between two samples.
    monotonic_s
        A clock that never steps.
    stopped
        Waits so many seconds, or less if it is time to stop; tells whether it is.
    phase
        When to begin, in intervals from now: from 0 on and below 1.
    """
    if stopped(phase * interval_s):
        return
    start_s = monotonic_s()
    sampler.take()
    while True:
        now_s = monotonic_s()
        if stopped(next_deadline_s(start_s, interval_s, now_s) - now_s):
            return
        sample = sampler.take()
        if sample is not None:
            deliver(sample)
