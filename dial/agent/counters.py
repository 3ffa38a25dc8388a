"""From two readings of a counter to a rate, and never to a wrong one.

The kernel's counters only grow, until a device is replugged, a group is made anew, a
32-bit counter wraps, or (``iowait``, by its documentation) for no good reason.  A
difference below zero is therefore no measurement: it becomes ``NoData``, for that counter
alone and for that interval alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from dial.agent.files import Unavailable
from dial.types import Measured, Named, NoData

Counter = int | NoData
"""A counter as read, or why it could not be."""

ReadingT = TypeVar("ReadingT")

_MOST_DIGITS = 20
"""Of an unsigned 64-bit number; more is garbage, and the int of it may be huge."""


class Collector(Protocol[ReadingT]):
    """One kind of signal: how it is read, and what two readings say."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Fields of :class:`dial.types.AgentSample` that it answers for."""

    def read(self) -> ReadingT:
        """Take a reading.

        Raises
        ------
        Unavailable
            If nothing can be read; the message becomes the reason for all its metrics.
        """

    def rates(
        self, before: ReadingT, after: ReadingT, interval_s: float
    ) -> Mapping[str, Measured | Named]:
        """Return each field over the ``interval_s`` seconds between two readings; pure."""


def parse_count(text: str, where: str) -> int:
    """Read one unsigned counter.

    ``int`` alone would take ``-1``, ``1_000`` and digits of other scripts.

    Raises
    ------
    Unavailable
        If ``text`` is anything but 1 to 20 ASCII digits.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise Unavailable(f"{where}: {text[:40]!r} is not a counter")
    return int(text)


def parse_keyed(text: str, where: str) -> dict[str, int]:
    """Read lines of ``key value``, as ``cpu.stat`` has them.

    Raises
    ------
    Unavailable
        If a line is not of that form.
    """
    counts = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        counts[key] = parse_count(value.strip(), f"{where}: {key[:40]}")
    return counts


def growth(before: Counter, after: Counter) -> int | NoData:
    """Return what was added between two readings, or why it is not known."""
    if isinstance(after, NoData):
        return after
    if isinstance(before, NoData):
        return NoData("first reading of this counter: a rate needs two")
    if after < before:
        return NoData(f"the counter went backwards ({before} to {after}): restarted or wrapped")
    return after - before


def per_second(
    before: Counter, after: Counter, interval_s: float, *, per_unit: float = 1.0
) -> Measured:
    """Return the rate of a counter.

    Parameters
    ----------
    before, after
        The counter at either end of the interval.
    interval_s
        Seconds between the two.
    per_unit
        How many counts make one of the wanted unit: 1e6 turns microseconds into seconds.

    Examples
    --------
    >>> per_second(1_000_000, 1_500_000, 2.0, per_unit=1e6)
    0.25
    """
    added = growth(before, after)
    if isinstance(added, NoData):
        return added
    if interval_s <= 0.0:
        return NoData("no time passed between two readings")
    return added / per_unit / interval_s


def fraction_of_time(
    before: Counter, after: Counter, interval_s: float, *, per_second_counts: float
) -> Measured:
    """Return which part of the interval a counter of time covers, at most 1.

    The clock and the counter are not read at the same instant, so that a resource that
    was always busy can come out at 1.001.
    """
    rate = per_second(before, after, interval_s, per_unit=per_second_counts)
    return rate if isinstance(rate, NoData) else min(1.0, rate)
