"""How much the neighbour takes, and how much a backend could serve without it.

:mod:`dial.estimator.interference`
    rho_bg from T_x and rho_fg by the inverse of Eq. 1.
:mod:`dial.estimator.capacity`
    rho_fg and the peak throughput r_i, by the utilisation law.
"""

from dial.estimator.capacity import PeakState, cpu_utilisation, learn_peak, peak_rps
from dial.estimator.interference import QuietCurve, estimate_rho_bg, smooth

__all__ = [
    "PeakState",
    "QuietCurve",
    "cpu_utilisation",
    "estimate_rho_bg",
    "learn_peak",
    "peak_rps",
    "smooth",
]
