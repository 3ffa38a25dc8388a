"""Which request comes when, and what it costs: drawn from the seed before anything runs.

Every policy is offered the very same requests at the very same moments, so that what
differs between two policies is what the policies did.  Arrivals are Poisson (open loop:
they do not wait for answers), costs exponential.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Swing:
    """The tenant's own load from ``begin_s`` to ``end_s``, over that at other times."""

    begin_s: float
    end_s: float
    rate_factor: float = 1.0
    cost_factor: float = 1.0


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


def out_of_step(seed: int, stream: int) -> float:
    """How far into a controller's interval a block begins: a part of it, uniform in [0, 1).

    Neighbours do not come in step with the controller.  A block that begins as soon as the
    controller is there has all its phases, whole seconds long, a few milliseconds from a tick:
    a reaction that takes the evidence of two ticks was 2.0 s in each of fifteen runs.

    Parameters
    ----------
    seed, stream
        As in :func:`draw`; arrivals are independent of it.
    """
    return float(np.random.default_rng([seed, stream, 1]).random())


def draw(
    seed: int,
    stream: int,
    rate_per_s: float,
    *,
    duration_s: float,
    mean_cost: float,
    swings: Sequence[Swing] = (),
) -> Arrivals:
    """Draw the requests of one block.

    Parameters
    ----------
    seed, stream
        The run's seed, and which block of it (its round): different streams are
        independent, the same one is always the same.
    rate_per_s
        Mean arrival rate outside the swings.
    duration_s
        Length of the block.
    mean_cost
        Mean of the exponential cost outside the swings.
    swings
        When rate and cost are others: one after the other, within the block.

    Raises
    ------
    ValueError
        If swings overlap, are out of order, or reach out of the block.
    """
    moments = [0.0, *(at for swing in swings for at in (swing.begin_s, swing.end_s)), duration_s]
    if any(later < earlier for earlier, later in pairwise(moments)):
        raise ValueError(f"swings at {moments[1:-1]} s: not in order within 0 to {duration_s:g} s")
    random = np.random.default_rng([seed, stream])
    # Arrivals of rate 1 in a time that runs faster where more arrive (inversion method).
    knots_s = np.array(moments)
    factors = [1.0, *(factor for swing in swings for factor in (swing.rate_factor, 1.0))]
    knots = np.concatenate([[0.0], np.cumsum(np.diff(knots_s) * rate_per_s * np.array(factors))])
    mean = float(knots[-1])
    # Ten standard deviations more than the mean count, so that one draw is enough.
    count = int(mean + 10 * np.sqrt(mean) + 10)
    ticks = np.cumsum(random.exponential(1.0, count))
    cost = random.exponential(mean_cost, count)
    kept = int(np.searchsorted(ticks, mean))
    at_s = np.interp(ticks[:kept], knots, knots_s)
    amount = cost[:kept]
    for swing in swings:
        within = (at_s >= swing.begin_s) & (at_s < swing.end_s)
        amount = np.where(within, swing.cost_factor * amount, amount)
    return Arrivals(at_s, np.maximum(1, amount).astype(np.int64))
