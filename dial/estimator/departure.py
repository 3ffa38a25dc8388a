r"""Whether a neighbour has gone: two hypotheses, and evidence summed up over intervals.

Problem
    A backend that load was moved away from has few requests, so that T_x of one interval is off
    by a third and more, and the running estimate of rho_bg falls slowly once the neighbour has
    left.  To hand load back on a low estimate is slow when one asks it to be sure, and wrong when
    one does not.

Formula
    ln T_x is about normal, with the error sd of sampling and of Eq. 1.  By Eq. 1 and the backend's
    present load it is x0 when nobody takes anything, and x1 when somebody takes as much as was
    estimated.  The log of the likelihood ratio of an interval,

        l = (x1 - x0) ((x0 + x1)/2 - ln T_x) / sd^2,

    is summed up and never falls below 0 (Page's test):

        E <- max(0, E + min(l, h k / (n - 1/2))),      gone when E >= h

    where k is how many intervals the reading is of (a part of one, if one is looked at before it is
    over), and n the fewest that may be enough.

Regimes
    strong neighbour
        x0 and x1 are far apart: n intervals are enough, n - 1 never are, nor their halves.
    neighbour that pauses
        Work on a disk comes in bursts: of one that took 0.65 two intervals in a row showed nothing,
        and the third I/O pressure of 2.7 times the usual.  Hence n is 3 at least.  Who calls knows
        what pauses for longer.
    weak neighbour, few requests
        Little is learnt of an interval, and it takes as many as it takes.
    neighbour that stays
        At least exp(h) intervals lie between false releases (Lorden), and fewer where Eq. 1 is
        off to the same side in all of them: the guards see to what follows.
    neighbour that takes less now
        The estimate follows, and x1 with it; load moves back in part.  One that takes less than
        half of what it took is held to be gone, and found again.

Source
    Page, "Continuous inspection schemes", Biometrika 41, 1954; Lorden, "Procedures for reacting
    to a change in distribution", Annals of Mathematical Statistics 42, 1971.  The paper (2.5)
    hands load back when T_x is normal, which it is as soon as load has moved.
"""

from __future__ import annotations

import math

from dial.estimator.tracking import Reading
from dial.queueing import LEAST_T_X_MS, RHO_MAX

FEWEST_INTERVALS = 3
"""n of whatever is not known to pause for longer."""

_NEARLY_FULL = 0.98
"""Where Eq. 1 is asked at most: a T_x of infinity has no logarithm."""


def departed(
    evidence: float,
    reading: Reading,
    strength: float,
    *,
    model_error: float,
    enough: float,
    intervals: float = 1.0,
    fewest_intervals: int = FEWEST_INTERVALS,
) -> float:
    """The evidence after one more interval that the neighbour has gone.

    Parameters
    ----------
    evidence : E so far.
    reading : of this interval of one backend.
    strength : rho_bg of a neighbour that is still there.
    model_error : standard deviation of ln T_x about Eq. 1, beside sampling.
    enough : h.
    intervals : k.
    fewest_intervals : n.
    """
    rho_fg = float(reading.rho_fg)
    gone = math.log(reading.curve.t_x_ms(min(rho_fg, RHO_MAX)))
    still = math.log(reading.curve.t_x_ms(min(rho_fg + strength, _NEARLY_FULL)))
    error = math.hypot(float(reading.error(strength)), model_error)
    seen = math.log(max(float(reading.t_x_ms), LEAST_T_X_MS))
    likelier = (still - gone) * (0.5 * (gone + still) - seen) / error**2
    most_at_once = enough * intervals / (fewest_intervals - 0.5)
    return max(0.0, evidence + min(likelier, most_at_once))
