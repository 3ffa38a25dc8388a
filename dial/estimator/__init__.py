"""How much the neighbour takes, and how much a backend could serve without it.

:mod:`dial.estimator.quiet_curve`
    Eq. 1 through a backend's quiet past.
:mod:`dial.estimator.tracking`
    rho_bg from T_x and rho_fg by the inverse of Eq. 1, followed over time.
:mod:`dial.estimator.capacity`
    rho_fg and the peak throughput r_i, by the utilisation law.
:mod:`dial.estimator.departure`
    Whether the neighbour has gone.
"""

from dial.estimator.capacity import (
    NO_PEAK,
    UTILISATION_FIELDS,
    PeakState,
    learn_peak,
    peak_rps,
    utilisation,
    why_no_utilisation,
)
from dial.estimator.departure import FEWEST_INTERVALS, departed
from dial.estimator.quiet_curve import NO_CURVE, QuietCurve
from dial.estimator.tracking import SLOWDOWN, Reading, RhoBg, Tracker

__all__ = [
    "FEWEST_INTERVALS",
    "NO_CURVE",
    "NO_PEAK",
    "SLOWDOWN",
    "UTILISATION_FIELDS",
    "PeakState",
    "QuietCurve",
    "Reading",
    "RhoBg",
    "Tracker",
    "departed",
    "learn_peak",
    "peak_rps",
    "utilisation",
    "why_no_utilisation",
]
