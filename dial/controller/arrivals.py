"""The arrival rate that load is split for: what arrives now, or arrived a moment ago.

Problem
    The optimum of Eq. 2 moves with the load, and with next to none the fastest backend takes all
    but the floors, however little it is the fastest: nobody waits.  Load that paused comes back
    within a second, and meets the shares of no load.  Of 110 requests/s for backends of 100, 98
    and 30 the first would get 103.

Formula
    From the rate n of each interval

        mean  <-  mean + (n - mean) / 4         over some seven intervals
        peak  <-  max(mean, peak exp(-1/60))

    and load is split for the peak.

Regimes
    steady
        The peak is what the mean comes to by chance: 2 % above it at 40 requests/s, 0.3 % at 200.
    load comes
        Both follow within seven intervals.
    load pauses
        After 20 ticks the shares are those for 0.72 of it; a minute is as long as most dashboards
        wait before they ask again.
    load goes
        After three minutes shares are those for what is left.  Until then the slow backend has more
        than is best, at a load where there is room for it: the mean response time of Eq. 2 is 2 %
        longer in the example, and a fifth at most where the peak was nine tenths of all that can be
        served.  The other error, too little for who has to help, has no such bound.
    more than all can serve
        Said of the mean: an overload that is over is none.

Source
    Own.  Finagle's peak EWMA, too, believes at once what costs most to miss, and forgets it slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_NEWEST = 0.25
"""What the newest interval counts of the mean: of 200 a second one second has 14 more or less."""

_KEPT = math.exp(-1.0 / 60.0)
"""Of the peak, in a tick."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests/s of the whole service.

    Attributes
    ----------
    mean_per_s
        Fading mean.
    peak_per_s
        Largest mean of late; at least ``mean_per_s``.
    """

    mean_per_s: float
    peak_per_s: float

    @classmethod
    def begin(cls, rate_per_s: float) -> Arrivals:
        """After the first interval."""
        return cls(rate_per_s, rate_per_s)

    def step(self, rate_per_s: float) -> Arrivals:
        """After one more interval."""
        mean_per_s = self.mean_per_s + _NEWEST * (rate_per_s - self.mean_per_s)
        return Arrivals(mean_per_s, max(mean_per_s, _KEPT * self.peak_per_s))
