"""What the VM's own services do to each other, as a part of the agent's samples.

Two signals, by which slowness is told from a neighbour's doing:

``own_services_cores``
    CPU time that the services behind the balancer did not get because of the others: what these
    used, or for how long its share of the VM kept one from running, if that is more.  The two
    overlap: while one waits for its next share the others run.
``targets_missed_s``
    The paper's last resort: targets that no division of the VM meets.  A dry run divides
    nothing, so it never gets there.
"""

from __future__ import annotations

from dataclasses import dataclass

from dial.agent.counters import per_second
from dial.agent.files import Unavailable
from dial.partition.manager import Manager
from dial.types import Measured, NoData


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU time of the services that are not behind the balancer, throttled time of those that are.

    Attributes
    ----------
    others_ns, throttled_ns
        Since the groups were made, or why not.
    missed_s
        See :meth:`dial.partition.manager.Manager.missed_s`.
    """

    others_ns: int | NoData
    throttled_ns: int
    missed_s: Measured


class OwnServices:
    """Both signals.

    Parameters
    ----------
    managed
        Knows the services.
    """

    metrics = ("own_services_cores", "targets_missed_s")

    def __init__(self, managed: Manager) -> None:
        self._managed = managed

    def read(self) -> Reading:
        """Read the counters."""
        services = self._managed.services
        others_ns: int | NoData
        try:
            others_ns = sum(each.use.cpu_ns() for each in services if not each.balanced)
        except Unavailable as error:
            others_ns = NoData(str(error))
        throttled_ns = 0
        for each in services:
            if each.balanced:
                try:
                    throttled_ns += each.use.throttled_ns()
                except Unavailable:
                    continue  # no quota, so nothing throttles it
        return Reading(others_ns, throttled_ns, self._managed.missed_s())

    def rates(self, before: Reading, after: Reading, interval_s: float) -> dict[str, Measured]:
        """Return both; the second is a level, not a counter."""
        return {
            "own_services_cores": _taken(before, after, interval_s),
            "targets_missed_s": after.missed_s,
        }


def _taken(before: Reading, after: Reading, interval_s: float) -> Measured:
    used = per_second(before.others_ns, after.others_ns, interval_s, per_unit=1e9)
    if isinstance(used, NoData):
        return used
    kept = per_second(before.throttled_ns, after.throttled_ns, interval_s, per_unit=1e9)
    # A group that came or went makes its counter step.
    return used if isinstance(kept, NoData) else max(used, kept)
