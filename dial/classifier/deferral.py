"""What an application's waiting for itself costs, by the application's own signal: *intra-app*.

Problem
    A backend whose activities wait for one another (a lock, a pool, a ticket) is slow while its
    hardware is idle.  The tree looks at hardware: it says that nothing is wrong, or blames
    whatever the queue at the lock makes of the hardware (what waited comes in a burst).  Then a
    neighbour would be booked who is not there.

Formula
    With d the deferral fraction T_d/T_e of the interval and d0 its quiet mean, the part of an
    activity's time that is lost to waiting beyond the usual is

        excess = (d - d0) / (1 - d0),

    and what a neighbour takes and what waiting takes multiply: of the capacity that is lost,
    ``lost`` by Eq. 1 from T_x whoever took it,

        1 - lost = (1 - rho_bg) (1 - excess),      rho_bg = max(0, 1 - (1 - lost)/(1 - excess)).

Rule
    :mod:`dial.classifier.own` names the class.  Waiting is worth mentioning when
    excess/(1 - excess), the interference level T_f beyond the usual, is at least
    :data:`LEAST_LEVEL`.

Regimes
    no signal
        No agent, no page, no quiet past: never this class.  All others are as without this
        module.
    a neighbour on the CPU of an application with locks
        Whoever holds a lock is slower, so all wait longer; but they are slower outside of it
        too, and that part is left over: the tree's class stands.
    both at once
        The larger names the class, and rho_bg is what waiting leaves of what is lost.

Source
    T_d, T_e and T_f: Hu, Huang, Huang: pBox, SOSP 2023, 4.3.1.  The rule is our own.  It is a
    rule and not a branch of the tree because a tree learns from recordings, in which the signal
    would be there or not by who had made them: what has no signal must not be told by its lack.
"""

from __future__ import annotations

import numpy as np

from dial.columns import Floats

FEATURE = "deferral_excess"
"""Name of the excess among the features of an interval; the tree does not know it."""

LEAST_LEVEL = 0.5
"""T_f that is tolerated: the isolation goal of 50 % of all of the paper's evaluation (6.2)."""

LEAST_EXCESS = LEAST_LEVEL / (1.0 + LEAST_LEVEL)
"""The same as a part of an activity's time: a third."""


def excess(fraction: Floats, quiet: Floats) -> Floats:
    """The part of activities' time that is lost to waiting beyond the usual, (n,) of 0 to 1.

    NaN where one is not known, and where nothing was left in quiet times either.

    Examples
    --------
    >>> excess(np.array([0.6]), np.array([0.2]))
    array([0.5])
    """
    left = np.where(quiet < 1.0, 1.0 - quiet, np.nan)
    beyond: Floats = np.maximum(0.0, (fraction - quiet) / left)
    return beyond


def left_over(lost: float, excess: float) -> float:
    """rho_bg: what waiting does not explain of the capacity that is lost.

    Examples
    --------
    Half is left.  Waiting alone would leave 0.8, so a neighbour takes 3/8:

    >>> round(left_over(0.5, 0.2), 3)
    0.375
    """
    return 0.0 if excess >= lost else 1.0 - (1.0 - lost) / (1.0 - excess)
