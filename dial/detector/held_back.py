"""Values that are not learnt yet, a run of them for each backend: (n, k), the newest last.

Where a run is shorter than k what is older is NaN.
"""

from __future__ import annotations

import math

import numpy as np

from dial.columns import Bools, Floats


def none_held_back(n: int) -> Floats:
    """No run yet, (n, 0)."""
    return np.zeros((n, 0))


def hold_back(runs: Floats, value: Floats, where: Bools, *, at_most: int) -> Floats:
    """Append ``value`` (n,) to the runs ``where`` (n,) is true; the newest ``at_most`` are kept."""
    if not where.any():
        return runs
    n, width = runs.shape
    if width < at_most and (width == 0 or bool(np.isfinite(runs[where, 0]).any())):
        runs = np.concatenate((np.full((n, 1), math.nan), runs), axis=1)
    pushed = np.concatenate((runs[:, 1:], value[:, None]), axis=1)
    return np.where(where[:, None], pushed, runs)


def forget(runs: Floats, where: Bools) -> Floats:
    """End the runs ``where`` (n,) is true."""
    if not runs.shape[1]:
        return runs
    kept = np.where(where[:, None], math.nan, runs)
    used = np.isfinite(kept).any(axis=0)
    return kept[:, int(used.argmax()) :] if used.any() else none_held_back(len(runs))
