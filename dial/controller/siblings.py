"""What is asked of the control groups in one tick, each kind of all who need it at once.

Comparing one backend takes as long as comparing fifty, so that the first to ask for a kind of
comparison has it made for every backend that will; a kind that nobody asks for is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TypeVar

from dial.columns import Ints
from dial.controller.comparison import Comparison
from dial.controller.control_groups import ControlGroups
from dial.controller.noise import Noise
from dial.estimator import RhoBg
from dial.types import Cause, NoData

_T = TypeVar("_T")
_Compare = Callable[[ControlGroups, Ints, Ints], list[Comparison | NoData]]


class Siblings:
    """The comparisons of one tick: each kind of all who need it, once one of them does.

    Parameters
    ----------
    groups : every backend's siblings.
    unlikely, likely : rows of the backends that are slower than expected, and are that by chance as
        well as not, or likely not by chance.
    intervals : (n,) over how many each backend is compared.
    followed : rows of those that load was moved away from.
    """

    def __init__(
        self,
        groups: ControlGroups,
        *,
        unlikely: Ints,
        likely: Ints,
        intervals: Ints,
        followed: Ints,
    ) -> None:
        self._groups, self._intervals = groups, intervals
        self._unlikely, self._likely, self._followed = unlikely, likely, followed
        self._compared: dict[_Compare, dict[int, Comparison | NoData]] = {}

    def why_not(self, row: int) -> NoData | None:
        """Why one that may be slow by chance cannot be compared with its siblings, if it cannot."""
        return self._unlikely_why_not[row]

    def by_t_x(self, row: int) -> Comparison | NoData:
        """One that likely is slow beside its siblings, by T_x, or why not."""
        return self._likely_by(ControlGroups.by_t_x)[row]

    def by_cpu_time(self, row: int) -> Comparison | NoData:
        """The same by the CPU time of a request."""
        return self._likely_by(ControlGroups.by_cpu_time)[row]

    def by_cpu_residence(self, row: int) -> Comparison | NoData:
        """The same by the time of a request at the CPU."""
        return self._likely_by(ControlGroups.by_cpu_residence)[row]

    def by_cpu_wait(self, row: int) -> Comparison | NoData:
        """The same by the CPU time waited for."""
        return self._likely_by(ControlGroups.by_cpu_wait)[row]

    def by_disk_wait(self, row: int) -> Comparison | NoData:
        """The same by the time waited for the disk."""
        return self._likely_by(ControlGroups.by_disk_wait)[row]

    def by_resource(self, row: int, cause: Cause) -> Comparison | None:
        """What the accused gives it beside its siblings, by what the VM sees of that itself.

        ``None`` where that is not known, where the siblings' gives as little, and for the network,
        of which the VM sees nothing.
        """
        witnesses = {
            Cause.CPU: self.by_cpu_wait,
            Cause.LLC: self.by_cpu_time,
            Cause.DISK: self.by_disk_wait,
        }
        if cause not in witnesses:
            return None
        found = witnesses[cause](row)
        return None if isinstance(found, NoData) or found.shared else found

    @property
    def noise(self) -> Noise:
        """By how much the errors of T_x and of CPU times are larger than those of sampling."""
        return self._groups.noise

    def by_rate(self, row: int) -> RhoBg | NoData:
        """What the balancer's choice speaks for, since it last was calm."""
        return self._likely_by_rate[row]

    def typical(self, row: int, cause: Cause) -> RhoBg | NoData:
        """What siblings of one that is followed suffer, by the witness that counts for a cause."""
        return (self._typical_by_cpu_time if cause is Cause.LLC else self._typical_by_t_x)[row]

    def _likely_by(self, compare: _Compare) -> dict[int, Comparison | NoData]:
        """What ``compare`` finds of all that likely are slow, which is asked for once."""
        if compare not in self._compared:
            rows = self._likely
            found = compare(self._groups, rows, self._intervals[rows])
            self._compared[compare] = _by_row(rows, found)
        return self._compared[compare]

    @cached_property
    def _unlikely_why_not(self) -> dict[int, NoData | None]:
        rows = self._unlikely
        return _by_row(rows, self._groups.why_not(rows, self._intervals[rows]))

    @cached_property
    def _likely_by_rate(self) -> dict[int, RhoBg | NoData]:
        rows = self._likely
        return _by_row(rows, self._groups.by_rate(rows, self._intervals[rows]))

    @cached_property
    def _typical_by_t_x(self) -> dict[int, RhoBg | NoData]:
        return _by_row(self._followed, self._groups.typical(self._followed, by_cpu_time=False))

    @cached_property
    def _typical_by_cpu_time(self) -> dict[int, RhoBg | NoData]:
        return _by_row(self._followed, self._groups.typical(self._followed, by_cpu_time=True))


def _by_row(rows: Ints, found: Iterable[_T]) -> dict[int, _T]:
    return dict(zip(rows.tolist(), found, strict=True))
