"""Mean and spread of what was quiet, fading: Welford's update.

Source
    Welford, "Note on a method for calculating corrected sums of squares and products",
    Technometrics 4, 1962; the past counts 1/e after ``memory_intervals``.
"""

from __future__ import annotations

from dial.columns import Floats


def with_one_more(
    weight: Floats, mean: Floats, m2: Floats, x: Floats, *, memory_intervals: int
) -> tuple[Floats, Floats, Floats]:
    """The fading number of values, their mean and sum of squared deviations after ``x``, (n,)."""
    fade = 1.0 - 1.0 / memory_intervals
    weight = weight * fade + 1.0
    delta = x - mean
    mean = mean + delta / weight
    return weight, mean, m2 * fade + delta * (x - mean)
