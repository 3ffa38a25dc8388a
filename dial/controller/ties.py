"""Who is taken last of idle backends: the slower one, though nobody is to blame.

Problem
    Where little is to do, most backends are idle, and a balancer takes them in turn whatever their
    pace.  A backend that has always been slower than its siblings (an older machine, a neighbour of
    before the first interval, a working set that others push out of the cache between two requests)
    then has as many requests as they have, and the tail is its own.

Formula
    Requests that go where they are to be served soonest (``WeightKind.SERVICE_RATE``) go by
    (requests + 1) / weight.  With 0.95 of its configured weight a backend is taken only when all
    others have a request, and has a second one only when they have two: it breaks ties, and moves
    nothing else.  That is done of whoever is in quiet times

        ratio >= slower_ratio    and    ln ratio >= 4 standard errors

    times as slow as its siblings (:class:`dial.controller.baseline.Standing`), the slowest first,
    while the others can do without it: at most 0.6 of what they serve at their peak arrives.  It
    ends where the ratio is less than half of that way from 1, or more than 0.7 arrives.

Regimes
    a balancer that goes by anything but delay
        Least connections take an idle server whatever its weight is, and a round robin's weights
        are shares: nothing is done.
    configured weights that differ
        The admin has said who is to have more.  Nothing is done.
    much load
        Ties are rare, little is won, and what few requests say of a neighbour comes late: of the
        lab's victims in the cache, at half of the load, load left one after 2.2 s (median of 15)
        with its even part of the requests, and after 4.5 (of 5) with half of that.  So nothing is
        done; nor where it is not known what backends serve at their peak.
    little load
        A slower backend that is never needed gets no requests, and nobody would learn that it has
        become faster: for 20 ticks of 600 it is taken as it comes.
    a neighbour comes
        Its victim has few requests already.  What is learnt goes on being learnt, as when the
        tenant's own load falls; but parts of the requests are not what they were, so that the
        balancer's choice speaks for nobody (:mod:`dial.controller.passed_over`), and that few
        requests are dear is no reason to accuse the cache (:attr:`dial.controller.look.Looks`).

Source
    Own; 0.95 beside other weights is simulated in decision 43, and decision 50 has what it wins.
"""

from __future__ import annotations

import math

import numpy as np

from dial.columns import Bools, Floats
from dial.controller.arrivals import Arrivals
from dial.controller.baseline import Standing
from dial.controller.policy import Policy
from dial.controller.siblings import SURE_ALONE_DEVIATIONS
from dial.controller.state import Backends, Shift
from dial.seen import Seen
from dial.types import Observation, WeightKind

TAKEN_LAST = 0.95
"""Of the configured weight: any that is less than it, and above 1/2, breaks ties between idle
backends alike; this one hardly moves anything else up to 19 requests at each."""

_STAYS = 0.5
"""Of the way from 1 to ``slower_ratio``: a ratio that wavers must not make the weight waver."""

_BEGINS, _ENDS = 0.6, 0.7
"""Of what the others serve at their peak, as it is known.  With little load that is too little, for
few requests are dear: 90 a second of the lab's backends that use a cache, at 27, where 135 are
served in truth.  So 0.6 may be 0.4 of the truth."""

_CYCLE_TICKS, _AS_IT_COMES_TICKS = 600, 20
"""20 intervals are enough to be learnt from, and a thirtieth of the time."""


def slower_backends(
    policy: Policy,
    backends: Backends,
    shift: Shift | None,
    observation: Observation,
    *,
    seen: Seen,
    peak_rps: Floats,
    arrivals: Arrivals,
) -> Bools:
    """Who is to be taken last of idle backends, (n,).

    Parameters
    ----------
    policy : for ``guards.slower_ratio``.
    backends : what is remembered of them.
    shift : what the last plan wanted, if anything.
    observation : of this tick.
    seen : its backends, in the order of ``backends``.
    peak_rps : (n,) r_i; NaN where it is not known.
    arrivals : at the whole service.
    """
    last = np.zeros(len(seen), np.bool_)
    least = policy.guards.slower_ratio
    if (
        least is None
        or policy.strategies.split != "exact"
        or observation.meaning.kind is not WeightKind.SERVICE_RATE
        or observation.tick % _CYCLE_TICKS < _AS_IT_COMES_TICKS
    ):
        return last
    given = seen.usable & (seen.configured_weight > 0)
    if np.unique(seen.configured_weight[given]).size != 1:
        return last
    found = Standing.of(policy, backends)
    slower = found.above >= np.maximum(math.log(least), SURE_ALONE_DEVIATIONS * found.sd)
    part = np.full(len(seen), _BEGINS)
    if shift is not None and shift.last:
        still = found.above >= math.log1p(_STAYS * (least - 1.0))
        before = np.fromiter(map(shift.last.__contains__, backends.names), np.bool_, len(seen))
        slower, part = slower | (before & still), np.where(before, _ENDS, _BEGINS)
    rows = np.flatnonzero(slower & given)
    slowest_first = rows[np.argsort(-found.above[rows], kind="stable")]
    others_rps = peak_rps[given].sum() - np.cumsum(peak_rps[slowest_first])
    last[slowest_first[arrivals.peak_per_s <= part[slowest_first] * others_rps]] = True
    return last
