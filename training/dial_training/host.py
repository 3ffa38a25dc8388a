"""How busy this computer is with other things: read from ``/proc/stat`` before and after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")

MOST_BUSY = 0.15
"""Of all cores, with no session running: our own part of that is some 0.02."""

MOST_STEAL = 0.02
"""Of all CPU time: a tenth of what the mildest neighbour here takes of a machine."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Counters since boot, summed over cores, in clock ticks."""

    idle: int
    steal: int
    total: int

    @classmethod
    def read(cls, stat: Path = STAT) -> CpuTime:
        """Read them now."""
        first = stat.read_text(encoding="ascii").partition("\n")[0]
        # cpu user nice system idle iowait irq softirq steal guest guest_nice; what guests
        # used is in user and nice already.
        ticks = [int(word) for word in first.split()[1:9]]
        return cls(idle=ticks[3] + ticks[4], steal=ticks[7], total=sum(ticks))


@dataclass(frozen=True, slots=True)
class Use:
    """Of the time between two readings, as fractions of all cores."""

    busy: float
    steal: float
    """Taken by whoever shares the hardware with this computer."""

    @classmethod
    def between(cls, before: CpuTime, after: CpuTime) -> Use:
        """The use from one reading to a later one."""
        total = max(1, after.total - before.total)
        steal = (after.steal - before.steal) / total
        return cls(1.0 - steal - (after.idle - before.idle) / total, steal)
