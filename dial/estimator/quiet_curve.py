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

import numpy as np

from dial.columns import Columns, Floats
from dial.queueing import MM1, RHO_MAX, TailCurve
from dial.types import NoData

NO_CURVE = NoData("no quiet interval with both T_x and rho_fg yet")


@dataclass(frozen=True, slots=True, eq=False)
class QuietCurve(Columns):
    """Fading sums over the quiet intervals of each backend, (n,).

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

    weight: Floats
    sum_ms: Floats
    sum_idle: Floats
    sum_u: Floats

    @classmethod
    def blank(cls, n: int) -> QuietCurve:
        """Nothing is known of n backends."""
        zero = np.zeros(n)
        return cls(zero, zero, zero, zero)

    def learn(self, t_x_ms: Floats, rho_fg: Floats, *, memory_intervals: int) -> QuietCurve:
        """Add one quiet interval; one with a measurement missing (NaN) changes nothing.

        Nor does one of a backend that its own load saturates, where Eq. 1 says nothing.
        """
        usable = ~np.isnan(t_x_ms) & (rho_fg <= RHO_MAX)
        fade = 1.0 - 1.0 / memory_intervals
        idle = 1.0 - np.minimum(rho_fg, RHO_MAX)
        return self.changed(
            usable,
            weight=self.weight * fade + 1.0,
            sum_ms=self.sum_ms * fade + t_x_ms * idle,
            sum_idle=self.sum_idle * fade + idle,
            sum_u=self.sum_u * fade + 1.0 / idle,
        )

    def usual_rho_fg(self) -> Floats:
        """Mean rho_fg of what was learnt, (n,); NaN where nothing was."""
        usual: Floats = 1.0 - self.sum_idle / np.where(self.weight > 0.0, self.weight, np.nan)
        return usual

    def scale_ms(self, shape: TailCurve = MM1) -> Floats:
        """s, T_x of the idle backend, (n,); NaN where no quiet interval had both measurements."""
        learnt = (self.weight > 0.0) & (self.sum_ms > 0.0)
        expected = (
            shape.c0_ms * self.sum_idle + shape.c1_ms * self.weight + shape.c2_ms * self.sum_u
        )
        scale_ms: Floats = np.where(learnt, self.sum_ms, np.nan) / np.where(learnt, expected, 1.0)
        return scale_ms

    def curve(self, row: int, shape: TailCurve = MM1) -> TailCurve | NoData:
        """Eq. 1 of one backend in milliseconds, or why there is none yet."""
        scale_ms = float(self.take(np.array([row])).scale_ms(shape)[0])
        return shape.scaled(scale_ms) if scale_ms > 0.0 else NO_CURVE
