"""How much of a resource the neighbour takes: Eq. 1, read backwards.

Problem
    From the tail latency T_x of a backend and its own utilisation rho_fg, both of which
    the tenant sees, find rho_bg, which it does not.

Formula
    Eq. 1 gives T_x at utilisation rho = rho_fg + rho_bg.  Its inverse (in
    :class:`dial.queueing.TailCurve`) gives rho, and

        rho_bg = clamp(rho(T_x) - rho_fg, 0, 1 - rho_fg).

Regimes
    * With a trained model the curve of the resource in contention is known.
    * Without one, the backend's own quiet past fixes the scale of the M/M/1 curve,
      T_x = c1 / (1 - rho) with c1 the running mean of T_x (1 - rho_fg): no training is
      needed to get value on the first day.

Sampling error
    T_x of one short interval is noisy, and rho_bg inherits it: with a perfect model the
    mean absolute error is 0.043 in 10 s windows.  Successive estimates are smoothed
    exponentially, beginning with the first, so that a reaction is not delayed.

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.3.3 and step 3 of 2.5.
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


def estimate_rho_bg(curve: TailCurve | NoData, t_x_ms: Measured, rho_fg: Measured) -> Measured:
    """rho_bg of one interval, in [0, 1 - rho_fg], or why it cannot be told."""
    if isinstance(curve, NoData):
        return curve
    if isinstance(t_x_ms, NoData):
        return t_x_ms
    if isinstance(rho_fg, NoData):
        return rho_fg
    return min(max(curve.utilisation(t_x_ms) - rho_fg, 0.0), 1.0 - rho_fg)


def smooth(past: float, newest: float, weight: float) -> float:
    """Exponential smoothing: ``weight`` is that of the newest value, in (0, 1]."""
    return past + weight * (newest - past)
