"""What each backend's normal rests on, and how it stands beside its siblings': to be shown.

Problem
    What is normal for a backend is learnt from its own past, from the first interval on.  A
    neighbour that was there from the start is part of it, and nothing that is normal is ever
    detected.  From the backend alone that cannot be seen; its siblings' normal tells.

Formula
    Beside them it is so many times as slow,

        ratio = own / lower median of the siblings'

    of what the detector has learnt: T_x of the idle machine (the own load taken out), T_x itself
    where the own load is not known, or with the paper's band.  A baseline is *doubtful* when a
    neighbour could explain as much and load would be moved for it, by M/M/1

        1 - 1/ratio >= engage_rho_bg    and    ln ratio >= 3 standard errors.

Regimes
    machines of different kinds, or shares
        A machine that serves a request in twice the time is doubtful for good.  Only who knows the
        machines can tell: so this is shown, and nobody is accused by it.  All that is decided by
        it is who is taken last of idle backends (:mod:`dial.controller.ties`).
    fewer quiet intervals than are trusted
        Nothing is said of the ratio.
    all backends beside neighbours from the start
        All are as slow, and none is doubtful.

Source
    Own; the lower median is that of :mod:`dial.controller.control_groups`, and the three standard
    errors are those of :mod:`dial.controller.comparison`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from dial.columns import Bools, Floats, Ints
from dial.controller.comparison import SURE_DEVIATIONS
from dial.controller.policy import Policy
from dial.controller.state import Backends


@dataclass(frozen=True, slots=True, eq=False)
class Baselines:
    """What the quiet past of n backends rests on.

    Attributes
    ----------
    learnt
        (n,) intervals.  It begins at 0 again when another normal is learnt.
    ratio
        (n,) how many times as slow as its siblings' it is; NaN where that is not known.
    doubtful
        (n,) whether a neighbour may be part of it.
    interval_s
        Length of an interval.
    """

    learnt: Ints
    ratio: Floats
    doubtful: Bools
    interval_s: float

    @classmethod
    def of(cls, policy: Policy, backends: Backends, *, interval_s: float) -> Self:
        """Those of backends that are remembered, in their order; ``interval_s`` as configured."""
        found = Standing.of(policy, backends)
        sure = found.above >= SURE_DEVIATIONS * found.sd
        return cls(
            found.learnt,
            np.exp(found.above),
            sure & (1.0 - np.exp(-found.above) >= policy.guards.engage_rho_bg),
            interval_s,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """How the quiet past of n backends stands beside their siblings'.

    Attributes
    ----------
    learnt
        (n,) intervals.
    above, sd
        (n,) logarithm of the ratio, and its standard error; NaN where it is not known.
    """

    learnt: Ints
    above: Floats
    sd: Floats

    @classmethod
    def of(cls, policy: Policy, backends: Backends) -> Self:
        """That of backends that are remembered, in their order."""
        known = backends.known
        if policy.strategies.detect == "band":
            band = known.band
            learnt, weight = band.learnt, band.weight
            # ln T_x varies as T_x does in parts of its mean.
            mean_ms = np.where(learnt > 0, band.mean_ms, np.nan)
            level, m2, alike = np.log(mean_ms), band.m2_ms2 / mean_ms**2, np.zeros_like(learnt)
        else:
            cusum = known.cusum
            learnt, weight, level, m2 = cusum.learnt, cusum.weight, cusum.mean, cusum.m2
            alike = cusum.conditioned.astype(np.int64)
        trusted = learnt >= policy.learn_intervals
        weight = np.where(trusted, weight, np.nan)
        variance = m2 / ((weight - 1.0) * weight)
        above, above_variance = _beside_siblings(np.where(trusted, level, np.nan), variance, alike)
        return cls(learnt, above, np.sqrt(above_variance))


def _beside_siblings(level: Floats, variance: Floats, alike: Ints) -> tuple[Floats, Floats]:
    """By how much each level is above the lower median of the others that are alike.

    Parameters
    ----------
    level : (n,) NaN where it is not known.
    variance : (n,) of its error.
    alike : (n,) only backends with the same number are compared.

    Returns
    -------
    (n,) the differences, and the variance of their errors; NaN where there is nobody to compare.
    """
    difference, error = np.full((2, level.size), np.nan)
    for kind in np.unique(alike):
        rows = np.flatnonzero((alike == kind) & ~np.isnan(level))
        if rows.size < 2:
            continue
        ranked = rows[np.argsort(level[rows], kind="stable")]
        # Of the m - 1 others the lower median is the ((m - 2) // 2)th, counted without oneself.
        middle = (ranked.size - 2) // 2
        place = np.arange(ranked.size)
        median = ranked[np.where(place <= middle, middle + 1, middle)]
        difference[ranked] = level[ranked] - level[median]
        error[ranked] = variance[ranked] + variance[median]
    return difference, error
