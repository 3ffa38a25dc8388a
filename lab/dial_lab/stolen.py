"""What the hypervisor took of the lab's cores during a block, for somebody outside.

The problem: who shares the hardware comes for seconds to minutes, and slows all machines of one
policy's block and not those of the next one's.  In one cell P90 of DIAL's blocks was 9.5, 10.1,
10.4, 19.4 and 9.9 ms; in the fourth the two machines that no neighbour visits were twice as slow as
in the others.

The measure: steal time (proc(5), ``/proc/stat``), while a virtual core had work and was not run.
It is no doing of the policy: all have the same requests.  Two cores that were measured on for 65
minutes lost 34 s of it, 0.1 s of the two minutes after, and 1.4 s of eight seconds then.

What is done about it: a block of which much was stolen is run again (:mod:`dial_lab.undisturbed`),
and before that, as before calibrations and learning, somebody who stays is waited for
(:class:`Patience`).

Where a kernel counts none this finds none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

STAT = Path("/proc/stat")

MOST_STOLEN = 0.02
"""Part of a block, of the core that lost most.  In quiet minutes a core lost a thousandth; what two
hundredths do to P90 at three quarters of the load is 8 % (M/M/1), less than blocks differ by
chance."""

PAUSE_S = 20.0
"""Between two looks at who is still there: as elsewhere in the lab."""

_PROBE_S = 1.0
"""For which a core is kept busy to see what is stolen of it, which is counted in hundredths of a
second."""

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


class Patience:
    """Waiting for the hypervisor to give the cores back: for some time in all, and no longer.

    Five blocks with pauses take three minutes, and somebody may stay for an hour: then most blocks
    of that hour would be run five times, and of five that say nothing one would count.  But on some
    computers that is how it always is, so that a run does not wait longer than it lasts.

    Parameters
    ----------
    most_s
        In all.
    stat
        Where the kernel counts what is stolen.
    """

    def __init__(self, most_s: float = 0.0, stat: Path = STAT) -> None:
        self.left_s = most_s
        """How long it still would wait."""
        self._stat = stat

    def wait(self, cores: Iterable[int], note: Callable[[str], None]) -> None:
        """Return when little is stolen of the cores, or when that was waited for long enough.

        Parameters
        ----------
        cores
            Their numbers.  The caller's thread keeps each busy for a second.
        note
            Is told why it waits, and for how long it did.
        """
        began_s = time.monotonic()
        waits = False
        while self.left_s > 0.0:
            part = self._stolen_of(cores)
            if part <= MOST_STOLEN:
                break
            if not waits:
                minutes = self.left_s / 60.0
                note(f"{in_words(part)}; waiting for {minutes:.0f} minutes at most")
            waits = True
            pause_s = min(PAUSE_S, self.left_s)
            self.left_s -= pause_s
            time.sleep(pause_s)
        if waits:
            waited_s = time.monotonic() - began_s
            why = "it has left" if self.left_s > 0.0 else "it has not, and no more is waited for"
            note(f"waited for the hypervisor for {waited_s / 60.0:.1f} minutes: {why}")

    def _stolen_of(self, cores: Iterable[int]) -> float:
        """Of the core of which most is stolen while it has work, one after another."""
        before = os.sched_getaffinity(0)
        worst = 0.0
        try:
            for core in sorted(cores):
                os.sched_setaffinity(0, {core})
                steal, end_s = Steal([core], self._stat), time.monotonic() + _PROBE_S
                while time.monotonic() < end_s:
                    pass
                worst = max(worst, steal.part())
        finally:
            os.sched_setaffinity(0, before)
        return worst


def in_words(part: float) -> str:
    """What was stolen, and how much is let pass."""
    return (
        f"for {part:.1%} of the time the hypervisor ran somebody else where one of the lab's cores "
        f"had work, {MOST_STOLEN:.0%} are let pass"
    )
