"""Pressure stall information (PSI): the time in which somebody waited for a resource.

``some`` is the time in which at least one task waited, ``full`` that in which all tasks
that were not idle did.  The kernel also prints averages over 10 s, 60 s and 300 s; they
smear an event over the very seconds in which it is to be noticed, so the running totals
in microseconds are differenced here instead.  The kernel brings the totals up to date at
each read (``psi_show`` in kernel/sched/psi.c); only the averages wait for 2 s.
"""

from __future__ import annotations

from collections.abc import Mapping

from dial.agent.counters import Counter, fraction_of_time, parse_count
from dial.agent.files import Tree, Unavailable
from dial.types import Measured, NoData

_NEEDS = "pressure needs Linux 4.20 with CONFIG_PSI, on some kernels psi=1 at boot"

_SIGNALS = (
    ("psi_cpu_some_fraction", "cpu", "some"),
    ("psi_io_some_fraction", "io", "some"),
    ("psi_io_full_fraction", "io", "full"),
    ("psi_memory_some_fraction", "memory", "some"),
)


def parse_pressure(text: str, where: str) -> dict[str, int]:
    """Read a pressure file into total microseconds by kind.

    Raises
    ------
    Unavailable
        If a line lacks its total.

    Examples
    --------
    >>> parse_pressure("some avg10=0.09 avg60=0.22 avg300=0.21 total=486", "cpu")
    {'some': 486}
    """
    totals = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        _, found, total = rest.partition("total=")
        if not found:
            raise Unavailable(f"{where}: no total in {line[:60]!r}")
        totals[kind] = parse_count(total.strip(), where)
    return totals


class Pressure:
    """Pressure of a machine or of a v2 group.

    Parameters
    ----------
    tree
        Where to read.
    paths
        The file for each of ``cpu``, ``io`` and ``memory``.
    """

    metrics = tuple(metric for metric, _, _ in _SIGNALS)

    def __init__(self, tree: Tree, paths: Mapping[str, str]) -> None:
        self._tree = tree
        self._paths = paths

    def read(self) -> dict[str, Counter]:
        """Return total microseconds by metric; each file fails on its own."""
        totals: dict[str, dict[str, int] | NoData] = {}
        for resource, path in self._paths.items():
            try:
                totals[resource] = parse_pressure(self._tree.read(path), path)
            except Unavailable as error:
                totals[resource] = NoData(f"{error}; {_NEEDS}")
        counters: dict[str, Counter] = {}
        for metric, resource, kind in _SIGNALS:
            found = totals[resource]
            counters[metric] = (
                found
                if isinstance(found, NoData)
                else found.get(kind, NoData(f"{self._paths[resource]}: no line {kind!r}"))
            )
        return counters

    def rates(
        self, before: Mapping[str, Counter], after: Mapping[str, Counter], interval_s: float
    ) -> dict[str, Measured]:
        """Return the fraction of the interval that was stalled."""
        return {
            metric: fraction_of_time(
                before[metric], after[metric], interval_s, per_second_counts=1e6
            )
            for metric in self.metrics
        }
