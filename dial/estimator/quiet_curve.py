"""Eq. 1 of a backend: a shape that is known beforehand, and a scale from its own quiet past.

Problem
    Eq. 1 ties T_x to rho_fg + rho_bg.  In milliseconds its coefficients are those of one
    application on one kind of machine; on the first day there is no training for another.

Formula
    T_x = s f(u), u = 1/(1 - rho), with the shape f(u) = c0 + c1 u + c2 u^2, f(1) = 1, from
    a model, or M/M/1's own, f(u) = u.  In quiet intervals rho is rho_fg, which the tenant
    sees, so the scale s, T_x of the idle backend, follows from sums over them:

        s = sum T_x (1 - rho_fg) / sum f(u) (1 - rho_fg)

    Each interval weighs 1 - rho_fg: T_x, and its error, grow with 1/(1 - rho).  The lower sum is
    c0 sum (1 - rho_fg) + c1 n + c2 sum u, so that three sums serve every shape.

Regimes
    The scale is measured, the shape given.  Where real latency rises faster than the shape
    the estimate of rho_bg comes out too high at high load, and too low at low load.

Source
    Javadi and Gandhi, IEEE TCC 2019, 2.3.3.  Departure: the paper trains all three
    coefficients for each application.
"""

from __future__ import annotations

from dataclasses import dataclass

from dial.queueing import MM1, RHO_MAX, TailCurve
from dial.types import Measured, NoData


@dataclass(frozen=True, slots=True)
class QuietCurve:
    """Fading sums over quiet intervals.

    Attributes
    ----------
    weight
        Of 1.
    sum_ms
        Of T_x (1 - rho_fg).
    sum_idle
        Of 1 - rho_fg.
    sum_u
        Of 1/(1 - rho_fg).
    """

    weight: float = 0.0
    sum_ms: float = 0.0
    sum_idle: float = 0.0
    sum_u: float = 0.0

    def learn(self, t_x_ms: Measured, rho_fg: Measured, *, memory_intervals: int) -> QuietCurve:
        """Add one quiet interval; one with a measurement missing changes nothing.

        Nor does one of a backend that its own load saturates, where Eq. 1 says nothing.
        """
        if isinstance(t_x_ms, NoData) or isinstance(rho_fg, NoData) or rho_fg > RHO_MAX:
            return self
        fade = 1.0 - 1.0 / memory_intervals
        idle = 1.0 - rho_fg
        return QuietCurve(
            self.weight * fade + 1.0,
            self.sum_ms * fade + t_x_ms * idle,
            self.sum_idle * fade + idle,
            self.sum_u * fade + 1.0 / idle,
        )

    def curve(self, shape: TailCurve = MM1) -> TailCurve | NoData:
        """Eq. 1 in milliseconds, or why there is none yet."""
        if self.weight <= 0.0 or self.sum_ms <= 0.0:
            return NoData("no quiet interval with both T_x and rho_fg yet")
        expected = (
            shape.c0_ms * self.sum_idle + shape.c1_ms * self.weight + shape.c2_ms * self.sum_u
        )
        return shape.scaled(self.sum_ms / expected)
