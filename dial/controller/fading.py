"""What intervals and siblings come to: means that fade, with their errors, and lower medians.

Problem, formula and source: :mod:`dial.controller.control_groups`.
"""

from __future__ import annotations

import numpy as np

from dial.columns import Bools, Floats, Ints
from dial.controller.history import Apparent
from dial.estimator import RhoBg

_FADE = 0.85
"""What an interval counts of the one after it: 0.5 after a long time of being slow alike is found
in four."""

_INSTANT = 1e-3
"""Below it the correlation of two intervals is 1, but for what arithmetic loses."""


def means(history: Apparent) -> tuple[Floats, Floats]:
    """Fading means of what is known, and standard errors, (k, m) each; NaN where nothing is."""
    known = ~np.isnan(history.mean)
    counts = _counts(known)
    # Summed up as they stand: a product of matrices may round otherwise from run to run.
    weight = (known * counts).sum(axis=-1)
    weight[weight == 0.0] = np.nan
    total = np.where(known, history.mean * counts, 0.0).sum(axis=-1)
    sd = np.where(known, history.sd, 0.0) * counts
    fades, alike = np.exp(-history.relaxations), _alike(history.relaxations)
    # Errors of the intervals gone by, each as it goes together with the present one's.
    along, last, variance = np.zeros((3, *weight.T.shape))
    for there, own, fade, together in zip(known.T, sd.T, fades.T, alike.T, strict=True):
        along = np.where(there, along * fade + last * together, along)
        variance += own * (own + 2.0 * along)
        last = np.where(there, own, last)
    return total / weight, np.sqrt(variance.T) / weight


def scatter(history: Apparent, means: Floats) -> Floats:
    """By how much intervals differ more from their fading ``means`` (k, m) than their errors; >= 1.

    Birge's ratio: the root of chi squared over the degrees of freedom; 1 where there are none.
    """
    known = ~np.isnan(history.mean)
    counts = known * _counts(known)
    n, weight = known.sum(axis=-1), counts.sum(axis=-1)
    deviations = np.where(known, (history.mean - means[..., None]) / history.sd, 0.0)
    chi_squared = (counts * deviations**2).sum(axis=-1) * n
    free = np.where(n > 1, weight * (n - 1.0), 1.0)
    found: Floats = np.sqrt(np.maximum(np.where(n > 1, chi_squared / free, 1.0), 1.0))
    return found


def _counts(known: Bools) -> Floats:
    """What each interval counts, (w,), of (..., w); the newest, which is the last, 1."""
    found: Floats = _FADE ** np.arange(known.shape[-1] - 1.0, -1.0, -1.0)
    return found


def _alike(relaxations: Floats) -> Floats:
    """Correlation of two intervals, one right after the other: an Ornstein-Uhlenbeck process's."""
    long = np.maximum(relaxations, _INSTANT)
    fades = np.exp(-long)
    found: Floats = (1.0 - fades) ** 2 / (2.0 * (long - 1.0 + fades))
    return np.where(relaxations < _INSTANT, 1.0, found)


def medians(means: Floats) -> Floats:
    """Lower medians over the intervals that are known, (k, m); NaN where none is."""
    known = np.count_nonzero(~np.isnan(means), axis=-1)
    middle = np.maximum(known - 1, 0) // 2
    in_order = np.sort(means, axis=-1)  # NaN comes last
    found: Floats = np.take_along_axis(in_order, middle[..., None], axis=-1)[..., 0]
    return found


def lower_medians(means: Floats, sds: Floats) -> list[RhoBg | None]:
    """Of those in each row (k, m) that are known at all."""
    known = np.count_nonzero(~np.isnan(means), axis=1)
    if not known.any():
        return [None] * len(known)
    order = np.argsort(means, axis=1, kind="stable")  # NaN comes last
    middle = order[np.arange(len(known)), np.maximum(known - 1, 0) // 2]
    at = np.arange(len(known)), middle
    found = zip(known.tolist(), means[at].tolist(), sds[at].tolist(), strict=True)
    return [RhoBg(mean, sd) if n else None for n, mean, sd in found]


def ages(known: Bools) -> Ints:
    """How many intervals ago the newest one is that is known, (k, m) of (k, m, w); w where none."""
    newest_first = known[..., ::-1]
    width = known.shape[-1]
    found: Ints = np.where(newest_first.any(axis=-1), newest_first.argmax(axis=-1), width)
    return found
