"""What the hypervisor took of the lab's cores during a block, for somebody outside.

The problem: who shares the hardware comes for seconds to minutes, and slows all machines of one
policy's block and not those of the next one's.  In one cell P90 of DIAL's blocks was 9.5, 10.1,
10.4, 19.4 and 9.9 ms; in the fourth the two machines that no neighbour visits were twice as slow as
in the others.

The measure: steal time (proc(5), ``/proc/stat``), while a virtual core had work and was not run.
It is no doing of the policy: all have the same requests.  Two cores that were measured on for 65
minutes lost 34 s of it, 0.1 s of the two minutes after, and 1.4 s of eight seconds then.

Where a kernel counts none this finds none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

STAT = Path("/proc/stat")

MOST_STOLEN = 0.02
"""Part of a block, of the core that lost most.  In quiet minutes a core lost a thousandth; what two
hundredths do to P90 at three quarters of the load is 8 % (M/M/1), less than blocks differ by
chance."""

_STEAL = 8
"""Which word of a core's line that is."""


class Steal:
    """Steal time of some cores since this was made.

    Parameters
    ----------
    cores
        Their numbers.
    stat
        Where the kernel counts it.
    """

    def __init__(self, cores: Iterable[int], stat: Path = STAT) -> None:
        self._lines = {f"cpu{core}" for core in cores}
        self._stat = stat
        self._begin_s = time.monotonic()
        self._before_s = self._read_s()

    def part(self) -> float:
        """Of the time since then what was stolen of the core that lost most, 0 to 1."""
        lasted_s = time.monotonic() - self._begin_s
        now_s = self._read_s()
        return max(now_s[name] - self._before_s[name] for name in self._lines) / lasted_s

    def _read_s(self) -> dict[str, float]:
        found = dict.fromkeys(self._lines, 0.0)
        for line in self._stat.read_text(encoding="ascii").splitlines():
            words = line.split()
            if words and words[0] in found and len(words) > _STEAL:
                found[words[0]] = int(words[_STEAL]) / os.sysconf("SC_CLK_TCK")
        return found


def in_words(part: float) -> str:
    """What was stolen, and how much is let pass."""
    return (
        f"for {part:.1%} of the time the hypervisor ran somebody else where one of the lab's cores "
        f"had work, {MOST_STOLEN:.0%} are let pass"
    )
