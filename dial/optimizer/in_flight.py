r"""The split of load under least connections: who takes part, and with how much.

Problem
    A round robin sends each backend its share whatever it holds.  Least connections looks at
    what each one holds, so it corrects an error of the shares by itself.  But a backend that
    is idle is taken whatever its weight (HAProxy sorts by requests in flight over weight, and 0
    over anything is 0).  A slow backend is often idle when the load is low, and then gets up to
    its even share: no weight but 0 keeps requests from it.

Formula
    A request is best off with a slow backend that is idle, where it takes 1/r_i, if the others
    would keep it longer.  By M/M/1 each of a set S that shares the rate a so that all are alike
    keeps it for 1/s, with

        s = (sum of r over S - a) / |S|.

    So, the slowest first, a contended backend i is left out while

        m r_i <= s(others),             m = ``_MARGIN`` (left out before: 1/m),

    which is Wardrop's equilibrium: none takes part that, idle, is slower than the others busy.
    Those who take part share by Eq. 2 (:mod:`dial.optimizer.shares`, no floor), and get weights
    for the requests in flight that this comes to (:mod:`dial.optimizer.weights`): sqrt(r_i).

Regimes
    low load, strong neighbour
        The victim is left out: P90 is what it would be without that backend.
    high load
        Everybody is needed.  Who waits behind two at a healthy backend is better off alone at
        half the pace.
    more than all can serve
        Nobody is left out, and load is split by throughput.

Source
    Own, for Lemma 1 of Javadi and Gandhi knows no feedback; Wardrop's first principle (1952).
    Simulated queues (Poisson arrivals, exponential service, HAProxy's order) of three backends, one
    of them r times as fast as the others, are better off without it, in P90, up to a load (of all
    that they serve) of 0.65, 0.52, 0.40, 0.23 for r = 0.2, 0.35, 0.5, 0.7.  The rule says 0.71,
    0.53, 0.37, 0.19; around the border neither is more than 5 % worse than the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dial.optimizer.shares import Split, tail_optimal_shares

_MARGIN = 1.07
"""r_i and the load are known to some 10 %: without it noise would put a backend in and out."""


def in_flight_split(
    throughput_per_s: NDArray[np.float64],
    arrival_per_s: float,
    contended: NDArray[np.bool_],
    left_out: NDArray[np.bool_],
) -> Split:
    """Shares under least connections; 0 for who is better left out.

    Parameters
    ----------
    throughput_per_s : (n,) r_i > 0, requests/s, of each backend as it is now.
    arrival_per_s : a >= 0, requests/s, of the service.
    contended : (n,) who may be left out; one of all takes part in any case.
    left_out : (n,) who was left out before.

    Raises
    ------
    ValueError
        As :func:`dial.optimizer.shares.tail_optimal_shares` does.
    """
    everybody = tail_optimal_shares(throughput_per_s, arrival_per_s)
    if everybody.overload:
        return everybody
    r = np.asarray(throughput_per_s, dtype=np.float64)
    worth_per_s = np.where(left_out, r / _MARGIN, r * _MARGIN)
    # Those who are not contended, then the others from the fastest on: s of all before each.
    order = np.lexsort((-worth_per_s, contended))
    spare_per_s = (np.cumsum(r[order])[:-1] - arrival_per_s) / np.arange(1, r.size)
    out = contended[order[1:]] & (worth_per_s[order[1:]] <= spare_per_s)
    if not out.any():
        return everybody
    taking_part = order[: 1 + int(np.argmax(out))]
    shares = np.zeros(r.size)
    shares[taking_part] = tail_optimal_shares(r[taking_part], arrival_per_s).shares
    return Split(shares, overload=False)
