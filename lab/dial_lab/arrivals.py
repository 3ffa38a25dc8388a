"""Which request comes when, and what it costs: drawn from the seed before anything runs.

Every policy is offered the very same requests at the very same moments, so that what
differs between two policies is what the policies did.  Arrivals are Poisson (open loop:
they do not wait for answers), costs exponential.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Swing:
    """The tenant's own load from ``begin_s`` to ``end_s``, over that at other times."""

    begin_s: float = 0.0
    end_s: float = 0.0
    rate_factor: float = 1.0
    cost_factor: float = 1.0


STEADY = Swing()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The requests of one block, in columns of equal length n.

    Attributes
    ----------
    at_s
        float64[n], ascending, seconds from the block's start.
    amount
        int64[n], what each request asks for, at least 1.
    """

    at_s: NDArray[np.float64]
    amount: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at_s)


def draw(
    seed: int,
    stream: int,
    rate_per_s: float,
    *,
    duration_s: float,
    mean_cost: float,
    swing: Swing = STEADY,
) -> Arrivals:
    """Draw the requests of one block.

    Parameters
    ----------
    seed, stream
        The run's seed, and which block of it (its round): different streams are
        independent, the same one is always the same.
    rate_per_s
        Mean arrival rate outside the swing.
    duration_s
        Length of the block.
    mean_cost
        Mean of the exponential cost outside the swing.
    swing
        When rate and cost are others.
    """
    random = np.random.default_rng([seed, stream])
    # Arrivals of rate 1 in a time that runs faster where more arrive (inversion method).
    knots_s = np.array([0.0, swing.begin_s, swing.end_s, duration_s])
    speed = rate_per_s * np.array([1.0, swing.rate_factor, 1.0])
    knots = np.concatenate([[0.0], np.cumsum(np.diff(knots_s) * speed)])
    mean = float(knots[-1])
    # Ten standard deviations more than the mean count, so that one draw is enough.
    count = int(mean + 10 * np.sqrt(mean) + 10)
    ticks = np.cumsum(random.exponential(1.0, count))
    cost = random.exponential(mean_cost, count)
    kept = int(np.searchsorted(ticks, mean))
    at_s = np.interp(ticks[:kept], knots, knots_s)
    swings = (at_s >= swing.begin_s) & (at_s < swing.end_s)
    amount = cost[:kept] * np.where(swings, swing.cost_factor, 1.0)
    return Arrivals(at_s, np.maximum(1, amount).astype(np.int64))
