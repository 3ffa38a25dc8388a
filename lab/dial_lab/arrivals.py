"""Which request comes when, and what it costs: drawn from the seed before anything runs.

Every policy is offered the very same requests at the very same moments, so that what
differs between two policies is what the policies did.  Arrivals are Poisson (open loop:
they do not wait for answers), costs exponential.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MEAN_CPU_MS = 2.0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The requests of one block, in columns of equal length n.

    Attributes
    ----------
    at_s
        float64[n], ascending, seconds from the block's start.
    cpu_us
        int64[n], CPU time each request asks for.
    """

    at_s: NDArray[np.float64]
    cpu_us: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at_s)


def draw(
    seed: int, stream: int, rate_per_s: float, duration_s: float, mean_cpu_ms: float = MEAN_CPU_MS
) -> Arrivals:
    """Draw the requests of one block.

    Parameters
    ----------
    seed, stream
        The run's seed, and which block of it (its round): different streams are
        independent, the same one is always the same.
    rate_per_s
        Mean arrival rate.
    duration_s
        Length of the block.
    mean_cpu_ms
        Mean of the exponential cost.
    """
    random = np.random.default_rng([seed, stream])
    # Ten standard deviations more than the mean count, so that one draw is enough.
    mean = rate_per_s * duration_s
    count = int(mean + 10 * np.sqrt(mean) + 10)
    at_s = np.cumsum(random.exponential(1.0 / rate_per_s, count))
    cpu_us = np.maximum(1, random.exponential(1000.0 * mean_cpu_ms, count)).astype(np.int64)
    kept = int(np.searchsorted(at_s, duration_s))
    return Arrivals(at_s[:kept], cpu_us[:kept])
