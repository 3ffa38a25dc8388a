r"""The split of an OLAP service's load, where only some workers hold a given segment.

Problem
    Segments are stored on c of n workers each.  Those with the same replicas form a group g with
    the fraction f_g of the load and the replicas S_g.  Choose how each group is split over its
    replicas, p_gi >= 0 with sum_i p_gi = 1 over S_g, so that the workers' shares

        q_i = sum_g f_g p_gi      minimise      sum_i q_i / (r_i - a q_i)        (Eq. 6)

    with throughput r_i and arrival rate a.

Formula
    Which q can be reached?  Those for which every set A of workers gets at least what nobody else
    can serve, q(A) >= F(A) = sum of f_g over S_g within A, and sum q = 1: the base polytope of the
    supermodular F.  A separable convex function is minimised over it by decomposition: minimise
    under sum q = 1 alone (Eq. 2: :func:`~dial.optimizer.shares.tail_optimal_shares`).  If no set is
    short of its F(A), that is the optimum.  Else take the set that is short of it most, a minimum
    cut between groups and workers: there q(A) = F(A), and the problem falls apart into A with the
    groups that have nowhere else to go, and the other workers with the other groups.

Regimes
    * One slow worker of n, replicas anywhere: q* is Lemma 1's p*_1, and of the segments that it
      holds it serves q* n/c (the paper's result; more than p*_1, for fewer workers can help), while
      that is at most 1.
    * Every worker holds everything (c = n): Eq. 2.
    * Groups whose every replica is slow: they share what there is, and the others' workers are not
      held up by it.
    * A set with a F(A) >= sum of its r: overload, split by throughput within that set only.

What a share is *of*
    Where a query goes to one worker (a draw per query), a is in queries/s, r_i in whole queries/s,
    and q_i is the fraction of queries that meet worker i.  Where each segment is drawn for itself,
    both are in segments/s, and a query meets worker i far more often than q_i says:
    :func:`met_by_queries`.  A query is as slow as the slowest worker it meets.

Source
    Javadi and Gandhi, IEEE TCC 2019, Eq. 6 (2.4.2).  Decomposition: Fujishige, "Lexicographically
    optimal base of a polymatroid with respect to a weight vector", Math. Oper. Res. 5, 1980;
    Groenevelt, "Two algorithms for maximizing a separable concave function over a polymatroid
    feasible region", EJOR 54, 1991.  Scaling: Sinkhorn and Knopp, Pacific J. Math. 21, 1967.

Departures
    Several slow workers and any placement, where the paper treats one slow worker and a fair one;
    a split that cannot be had is never asked for (q* n/c exceeds 1 when replicas are few).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from dial.optimizer.lemma1 import lemma1
from dial.optimizer.shares import Split, tail_optimal_shares

_UNITS = 1 << 30
"""Flow units that make up the whole load: capacities are 32 bit integers.  They decide only which
set is short, so no share is rounded; what is overlooked is a set that is short of less than the
slack: 2 (groups + n) / 2^30 of the load, 2e-4 at 100,000 groups."""

_SLACK_UNITS_PER_NODE = 2
"""Rounding of one capacity, which no set may be called short for."""

_TURNS = 2_000
"""Of the scaling; a placement where it still moves then has its optimum on the border, where some
weight would have to be 0 beside some others only."""

_CLOSE = 1e-9
"""Largest error of a share at which the scaling stops."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the load can be served.

    Attributes
    ----------
    load
        (g,) f_g >= 0, fraction of the load that falls to each group; they sum to 1.
    replicas
        (g, n) bool, whether worker i holds the segments of group g; at least one does.

    Raises
    ------
    ValueError
        If the shapes differ, a group has no replica, or the fractions do not sum to 1.
    """

    load: NDArray[np.float64]
    replicas: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.replicas.ndim != 2 or self.load.shape != self.replicas.shape[:1]:
            raise ValueError(
                f"load {self.load.shape}, replicas {self.replicas.shape}: want (g,) and (g, n)"
            )
        if not self.replicas.any(axis=1).all():
            raise ValueError("replicas: a group without one cannot be served")
        if not (np.all(self.load >= 0.0) and abs(float(self.load.sum()) - 1.0) < 1e-9):
            raise ValueError(f"load {self.load[:8]}: must be non-negative and sum to 1")

    @classmethod
    def of_segments(cls, servers: ArrayLike) -> Placement:
        """From (segments, n) bool, one row a segment, each of the same load."""
        rows = np.asarray(servers, dtype=np.bool_)
        replicas, count = np.unique(rows, axis=0, return_counts=True)
        return cls(count / count.sum(), replicas)

    @classmethod
    def fair(cls, workers: int, copies: int) -> Placement:
        """Each choice of ``copies`` of the workers holds the same part: the paper's case."""
        if comb(workers, copies) > 100_000:
            raise ValueError(f"{copies} of {workers} workers: more than 100,000 groups")
        replicas = np.zeros((comb(workers, copies), workers), dtype=np.bool_)
        for row, chosen in zip(replicas, combinations(range(workers), copies), strict=True):
            row[list(chosen)] = True
        return cls(np.full(len(replicas), 1.0 / len(replicas)), replicas)


def slow_worker_split(
    throughput_per_s: float, slow_per_s: float, arrival_per_s: float, workers: int, copies: int
) -> float:
    """Eq. 6 as the paper solves it: what one slow worker serves of the segments it holds.

    Parameters
    ----------
    throughput_per_s : r, of each of the others.
    slow_per_s : r_w, of the slow one.
    arrival_per_s : a, of the service.
    workers, copies : n and c.

    Returns
    -------
    float
        q* n/c, held to [0, 1]: 1/c is an even split.

    Examples
    --------
    The paper's first phase: 200 queries/s at 60 % load are r = 200 / 6 / 0.6 = 55.6; its 0.16 of
    the load for the slow worker (5.4.3) is that of one which has lost 46 %.

    >>> round(slow_worker_split(55.6, 29.8, 200.0, workers=6, copies=3), 2)
    0.16
    """
    rates = np.full(workers, throughput_per_s)
    rates[0] = slow_per_s
    q_star = float(lemma1(rates, arrival_per_s)[0])
    return min(1.0, max(0.0, q_star * workers / copies))


def olap_shares(
    throughput_per_s: NDArray[np.float64], arrival_per_s: float, placement: Placement
) -> Split:
    """Minimise Eq. 6 over what the placement allows.

    Parameters
    ----------
    throughput_per_s : (n,) r_i > 0, of each worker as it is now.
    arrival_per_s : a >= 0, of the service, in the same unit.
    placement : which worker can serve what.

    Returns
    -------
    Split
        Worker shares q_i, (n,), and whether some set of workers cannot serve what only it can.

    Raises
    ------
    ValueError
        If the shapes differ, or a rate is out of its range.
    """
    rates = np.asarray(throughput_per_s, dtype=np.float64)
    if rates.shape != placement.replicas.shape[1:]:
        raise ValueError(
            f"throughput {rates.shape}: want one for each of {placement.replicas.shape[1]} workers"
        )
    shares = np.zeros(rates.size)
    overload = False
    pieces = [(np.arange(rates.size), placement.load, placement.replicas)]
    while pieces:
        workers, load, replicas = pieces.pop()
        total = float(load.sum())
        split = tail_optimal_shares(rates[workers], arrival_per_s * total)
        wanted = total * split.shares
        short = _shortest_set(wanted, load, replicas)
        if short is None:
            shares[workers] = wanted
            overload |= split.overload
            continue
        only_here = ~replicas[:, ~short].any(axis=1)
        pieces.append((workers[short], load[only_here], replicas[only_here][:, short]))
        pieces.append((workers[~short], load[~only_here], replicas[~only_here][:, ~short]))
    return Split(shares / shares.sum(), overload)


def _shortest_set(
    wanted: NDArray[np.float64], load: NDArray[np.float64], replicas: NDArray[np.bool_]
) -> NDArray[np.bool_] | None:
    """The workers that fall most short of what only they can serve; ``None`` if no set does.

    A minimum cut: source -> group (its load) -> its replicas (no limit) -> sink (their share).
    """
    groups, n = len(load), len(wanted)
    total = float(load.sum())
    if total <= 0.0:
        return None
    capacity: NDArray[np.int32] = np.rint(np.concatenate([load, wanted]) / total * _UNITS).astype(
        np.int32
    )
    source, sink = groups + n, groups + n + 1
    group, worker = np.nonzero(replicas)
    tails = np.concatenate([np.full(groups, source), group, groups + np.arange(n)])
    heads = np.concatenate([np.arange(groups), groups + worker, np.full(n, sink)])
    limits = np.concatenate(
        [capacity[:groups], np.full(group.size, _UNITS, dtype=np.int32), capacity[groups:]]
    )
    nodes = groups + n + 2
    network = coo_array((limits, (tails, heads)), shape=(nodes, nodes)).tocsr()
    flow = maximum_flow(network, source, sink)
    missing = int(capacity[:groups].sum(dtype=np.int64)) - int(flow.flow_value)
    if missing <= _SLACK_UNITS_PER_NODE * (groups + n):
        return None
    residual = network - flow.flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, source, return_predecessors=False)
    short = np.zeros(n, dtype=np.bool_)
    short[[node - groups for node in reached if groups <= node < source]] = True
    return None if short.all() else short


def replica_weights(shares: NDArray[np.float64], placement: Placement) -> NDArray[np.float64]:
    """One weight a worker, by which a draw among a segment's replicas gives these shares.

    A balancer that knows weights of workers only splits group g by w_i / sum of w over S_g.  Rows
    that sum to f_g and columns that sum to q_i are had by scaling in turn (Sinkhorn).  In a fair
    placement with one slow worker, w = (c - 1) p / (1 - p) beside 1 for the others.

    Parameters
    ----------
    shares : (n,) q_i that the placement allows.
    placement : which worker can serve what.

    Returns
    -------
    (n,) weights, the largest 1.  Shares on the border of what is allowed come near, not exact.
    """
    q = np.asarray(shares, dtype=np.float64)
    weights = (q > 0.0).astype(np.float64)
    for _ in range(_TURNS):
        found = drawn_shares(weights, placement)
        if np.max(np.abs(found - q)) < _CLOSE:
            break
        ratio = np.divide(q, found, out=np.ones_like(q), where=found > 0.0)
        weights = weights * ratio
        weights /= weights.max()
    return weights


def drawn_shares(weights: NDArray[np.float64], placement: Placement) -> NDArray[np.float64]:
    """Worker shares, (n,), when each segment's replica is drawn by weight.

    Even among the replicas of a group where all have weight 0, as a balancer does it.
    """
    of_group = np.where(placement.replicas, weights, 0.0)
    unserved = of_group.sum(axis=1) <= 0.0
    of_group[unserved] = placement.replicas[unserved]
    split = of_group / of_group.sum(axis=1, keepdims=True)
    return np.asarray(placement.load @ split, dtype=np.float64)


def met_by_queries(share: float, segments_per_query: int) -> float:
    """Fraction of queries that meet a worker when each segment is drawn independently.

    A sequence that spreads a query's segments evenly, as the broker plugin's does, makes it more:
    0.60 for the example.

    >>> round(met_by_queries(0.05, 12), 2)
    0.46
    """
    return float(1.0 - (1.0 - share) ** segments_per_query)
