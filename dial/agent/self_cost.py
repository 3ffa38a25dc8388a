"""What the agent itself costs, told with every sample so that nobody has to trust it.

CPU time is the process's own clock (``CLOCK_PROCESS_CPUTIME_ID``), all threads included:
it counts nanoseconds, whereas ``os.times`` counts ticks of 10 ms, several times what the
agent uses in a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dial.agent.counters import Counter, parse_count, per_second
from dial.agent.files import Tree, Unavailable
from dial.types import Measured, NoData

_STATM = "/proc/self/statm"


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time so far, and resident memory now."""

    cpu_ns: int
    resident_bytes: Counter


def parse_statm(text: str, page_bytes: int) -> int:
    """Return resident bytes from ``/proc/self/statm`` (second field, in pages).

    Raises
    ------
    Unavailable
        If there is no such field.
    """
    fields = text.split()
    if len(fields) < 2:
        raise Unavailable(f"{_STATM}: no second field")
    return parse_count(fields[1], _STATM) * page_bytes


class SelfCost:
    """CPU and memory of this process.

    Parameters
    ----------
    tree
        Where to read.
    page_bytes
        ``sysconf(_SC_PAGE_SIZE)``.
    cpu_time_ns
        The process's CPU clock, :func:`time.process_time_ns`.
    """

    metrics = ("agent_cpu_cores", "agent_rss_mib")

    def __init__(self, tree: Tree, page_bytes: int, cpu_time_ns: Callable[[], int]) -> None:
        self._tree = tree
        self._page_bytes = page_bytes
        self._cpu_time_ns = cpu_time_ns

    def read(self) -> Cost:
        """Read both; memory that cannot be read does not take the CPU time with it."""
        resident: Counter
        try:
            resident = parse_statm(self._tree.read(_STATM), self._page_bytes)
        except Unavailable as error:
            resident = NoData(str(error))
        return Cost(self._cpu_time_ns(), resident)

    def rates(self, before: Cost, after: Cost, interval_s: float) -> dict[str, Measured]:
        """Return CPU seconds a second, and the memory of the newer reading."""
        resident = after.resident_bytes
        return {
            "agent_cpu_cores": per_second(before.cpu_ns, after.cpu_ns, interval_s, per_unit=1e9),
            "agent_rss_mib": resident if isinstance(resident, NoData) else resident / 2**20,
        }
