"""Small rules that keep a plan from doing harm, each a function of its own.

Shares are fractions of the service's requests; limits are fractions of the even share
1/n, so that they mean the same for three backends and for three hundred.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def floor_share(fraction_of_even: float, backends: int) -> float:
    """The least share a backend keeps.

    Without it a backend that was emptied gives no samples, and nobody would ever learn
    that its neighbour has left.
    """
    return fraction_of_even / backends


def limit_step(
    current: NDArray[np.float64], target: NDArray[np.float64], fraction_of_even: float
) -> NDArray[np.float64]:
    """As far towards ``target`` as one tick may go, (n,), summing to 1.

    All shares move by the same fraction of their way.  Cutting only the largest step would
    change the direction of the move, and hand what one backend may not lose yet to others
    in proportions nobody asked for.
    """
    largest = float(np.max(np.abs(target - current)))
    allowed = fraction_of_even / current.size
    if largest <= allowed:
        return target
    moved: NDArray[np.float64] = current + (target - current) * (allowed / largest)
    return moved


def worth_writing(
    current: NDArray[np.float64], target: NDArray[np.float64], fraction_of_even: float
) -> bool:
    """Whether any share would change by more than the hysteresis.

    An estimate that wavers by its sampling error must not make the weights waver.
    """
    return float(np.max(np.abs(target - current))) > fraction_of_even / current.size
