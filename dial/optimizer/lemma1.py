"""Lemma 1 of the paper, exactly as printed: the reference improvements are held against.

Source
    Javadi and Gandhi, IEEE TCC 2019, Eq. 3 (2.4.1).

Limits
    The formula solves Eq. 2 without the constraint p_i >= 0.  When the load is low and
    backends differ it gives negative shares (r = 100 and 10, a = 20: p_2 = -0.58), and
    beyond capacity it gives shares that no backend can serve.  Use
    :func:`dial.optimizer.shares.tail_optimal_shares`; this stays for comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def lemma1(throughput_per_s: NDArray[np.float64], arrival_per_s: float) -> NDArray[np.float64]:
    """p* of Eq. 3.

    Parameters
    ----------
    throughput_per_s : (n,) r_i, requests/s, positive.
    arrival_per_s : a, requests/s, positive.

    Returns
    -------
    (n,) shares that sum to 1; some may be negative.
    """
    r = throughput_per_s
    root = np.sqrt(r)
    p_star: NDArray[np.float64] = (r * root.sum() - root * r.sum() + arrival_per_s * root) / (
        arrival_per_s * root.sum()
    )
    return p_star
