"""Eq. 1 without training: the curve through a backend's own quiet past.

Problem
    Eq. 1 ties T_x to rho_fg + rho_bg, and its coefficients are trained on a dedicated host.
    On the first day there is no training.

Formula
    M/M/1's own curve, T_x = c1 / (1 - rho), has one unknown.  In quiet intervals rho is
    rho_fg, which the tenant sees, so c1 is the running mean of T_x (1 - rho_fg).

Regimes
    The scale is measured, the shape assumed.  Where real latency rises faster than M/M/1's
    the estimate of rho_bg comes out too high at high load, and too low at low load.

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.3.3.  Departure: the paper always trains.
"""

from __future__ import annotations

from dataclasses import dataclass

from dial.queueing import TailCurve
from dial.types import Measured, NoData


@dataclass(frozen=True, slots=True)
class QuietCurve:
    """The running mean of T_x (1 - rho_fg) over quiet intervals, in milliseconds."""

    weight: float = 0.0
    sum_ms: float = 0.0

    def learn(self, t_x_ms: Measured, rho_fg: Measured, *, memory_intervals: int) -> QuietCurve:
        """Add one quiet interval; one with a measurement missing changes nothing."""
        if isinstance(t_x_ms, NoData) or isinstance(rho_fg, NoData):
            return self
        fade = 1.0 - 1.0 / memory_intervals
        return QuietCurve(self.weight * fade + 1.0, self.sum_ms * fade + t_x_ms * (1.0 - rho_fg))

    def curve(self) -> TailCurve | NoData:
        """Eq. 1 with c1 alone, or why there is none yet."""
        if self.weight <= 0.0 or self.sum_ms <= 0.0:
            return NoData("no quiet interval with both T_x and rho_fg yet")
        return TailCurve.from_quiet(self.sum_ms / self.weight, rho_fg=0.0)
