"""Throttling by the group's *own* quota: slowness that no neighbour is to blame for.

``cpu.stat`` (v1 and v2 alike) counts the scheduler's periods in which the group ran, and
those in which it used its quota up.  A group without a quota is never throttled, and one
that did not run was not either: both are a true 0.  A quota of a group above this one
stays unseen on purpose, see :mod:`dial.agent.capacity`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dial.agent.counters import growth, parse_keyed
from dial.agent.files import Tree, Unavailable
from dial.types import Measured, NoData


@dataclass(frozen=True, slots=True)
class Periods:
    """Enforcement periods since the group was made."""

    total: int
    throttled: int


class Throttling:
    """Throttled periods of a group.

    Parameters
    ----------
    tree
        Where to read.
    directory
        The group's directory in the hierarchy that has the cpu controller.
    """

    metrics = ("throttled_fraction",)

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._stat = f"{directory}/cpu.stat"

    def read(self) -> Periods:
        """Read ``cpu.stat``; raises :class:`Unavailable`."""
        counts = parse_keyed(self._tree.read(self._stat), self._stat)
        if "nr_periods" not in counts or "nr_throttled" not in counts:
            raise Unavailable(f"{self._stat}: the cpu controller is not enabled for this group")
        return Periods(counts["nr_periods"], counts["nr_throttled"])

    def rates(
        self,
        before: Periods,
        after: Periods,
        interval_s: float,  # noqa: ARG002 - the signature of every Collector
    ) -> dict[str, Measured]:
        """Return the fraction of periods in which the quota ran out."""
        periods = growth(before.total, after.total)
        throttled = growth(before.throttled, after.throttled)
        fraction: Measured
        if isinstance(periods, NoData):
            fraction = periods
        elif isinstance(throttled, NoData):
            fraction = throttled
        else:
            fraction = min(1.0, throttled / periods) if periods else 0.0
        return {"throttled_fraction": fraction}
