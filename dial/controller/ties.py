"""Who is taken last of idle backends: the slower one, though nobody is to blame.

Problem
    Where little is to do, most backends are idle, and a balancer takes them in turn whatever their
    pace.  A backend that has always been slower than its siblings (an older machine, a neighbour of
    before the first interval, a working set that others push out of the cache between two requests)
    then has as many requests as they have, and the tail is its own.

Formula
    Requests that go where they are to be served soonest (``WeightKind.SERVICE_RATE``) go by
    (requests + 1) / weight.  With 0.95 / k of its configured weight a backend is taken only when
    each other has k requests, and has its next one when they have k more.  That is done of whoever
    is in quiet times

        ratio >= slower_ratio    and    ln ratio >= 4 standard errors

    times as slow as its siblings (:class:`dial.controller.baseline.Standing`), the slowest first,
    while the others can do without it: at most 0.6 of what they serve at their peak arrives.  It
    ends where the ratio is less than half of that way from 1, or more than 0.7 arrives.

        k = floor((1 + ratio) / 2), 3 at most, and stays while it is at most floor(ratio)

    Waiting behind k requests takes k + 1 times a sibling's service time, so that alone a request is
    served soonest with k = ratio - 1.  But a request that waits makes others wait: half of that is
    as good with little load, and better with more.

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
    a backend in doubt
        Who seems to be slowed by a neighbour that is not sure yet (:mod:`dial.controller.doubts`)
        is taken last as well, with k = 1, whatever its quiet past; and whoever else is, for with
        k = 1 nobody waits while another is idle.
    a neighbour comes
        Its victim has few requests already.  What is learnt goes on being learnt, as when the
        tenant's own load falls; but parts of the requests are not what they were, so that the
        balancer's choice speaks for nobody (:mod:`dial.controller.passed_over`), and that few
        requests are dear is no reason to accuse the cache (:attr:`dial.controller.look.Looks`).

Source
    Own; 0.95 beside other weights is simulated in decision 43, decision 50 has what it wins, and
    decision 51 what k wins beside it.
"""

from __future__ import annotations

import math

import numpy as np

from dial.columns import Floats, Ints
from dial.controller.arrivals import Arrivals
from dial.controller.baseline import Standing
from dial.controller.comparison import SURE_ALONE_DEVIATIONS
from dial.controller.policy import Policy
from dial.controller.state import Backends, Shift
from dial.seen import Seen
from dial.types import Observation, WeightKind

_TAKEN_LAST = 0.95
"""Of the configured weight: any that is less than it, and above 1/2, breaks ties between idle
backends alike; this one hardly moves anything else up to 19 requests at each."""

_MOST_AHEAD = 3
"""More wins nothing even of who is 10 times as slow, and costs where a ratio of response times is
more than that of service times (decision 51)."""

_STAYS = 0.5
"""Of the way from 1 to ``slower_ratio``: a ratio that wavers must not make the weight waver."""

_BEGINS, _ENDS = 0.6, 0.7
"""Of what the others serve at their peak, as it is known.  With little load that is too little, for
few requests are dear: 90 a second of the lab's backends that use a cache, at 27, where 135 are
served in truth.  So 0.6 may be 0.4 of the truth."""

_CYCLE_TICKS, _AS_IT_COMES_TICKS = 600, 20
"""20 intervals are enough to be learnt from, and a thirtieth of the time."""


def part_in_turn(ahead: Ints) -> Floats:
    """(n,) part of its configured weight with which a backend waits for ``ahead`` requests.

    Examples
    --------
    >>> part_in_turn(np.array([0, 1, 2])).tolist()
    [1.0, 0.95, 0.475]
    """
    return np.where(ahead > 0, _TAKEN_LAST / np.maximum(ahead, 1), 1.0)


def requests_ahead(
    policy: Policy,
    backends: Backends,
    shift: Shift | None,
    observation: Observation,
    *,
    seen: Seen,
    peak_rps: Floats,
    arrivals: Arrivals,
) -> Ints:
    """How many requests each other is to have before a backend is taken, (n,); 0: as it comes.

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
    ahead = np.zeros(len(seen), np.int64)
    least = policy.guards.slower_ratio
    if (
        least is None
        or policy.strategies.split != "exact"
        or observation.meaning.kind is not WeightKind.SERVICE_RATE
        or observation.tick % _CYCLE_TICKS < _AS_IT_COMES_TICKS
    ):
        return ahead
    given = seen.usable & (seen.configured_weight > 0)
    if np.unique(seen.configured_weight[given]).size != 1:
        return ahead
    found = Standing.of(policy, backends)
    slower = found.above >= np.maximum(math.log(least), SURE_ALONE_DEVIATIONS * found.sd)
    before = _before(shift, backends)
    still = (before > 0) & (found.above >= math.log1p(_STAYS * (least - 1.0)))
    rows = np.flatnonzero((slower | still) & given)
    slowest_first = rows[np.argsort(-found.above[rows], kind="stable")]
    all_rps, part = peak_rps[given].sum(), np.where(before > 0, _ENDS, _BEGINS)
    others_rps = all_rps - np.cumsum(peak_rps[slowest_first])
    taken = slowest_first[arrivals.peak_per_s <= part[slowest_first] * others_rps]
    ahead[taken] = ahead_by_ratio(np.exp(found.above[taken]), before[taken])
    in_doubt = np.fromiter(map(backends.doubts.__contains__, backends.names), np.bool_)
    # Whoever else is, too: with one request ahead nobody waits while another is idle.
    little = arrivals.peak_per_s <= part * (all_rps - peak_rps)
    return np.where(in_doubt & given & little, np.maximum(ahead, 1), ahead)


def _before(shift: Shift | None, backends: Backends) -> Ints:
    """(n,) what was found in the last tick."""
    ahead = {} if shift is None else shift.ahead
    return np.fromiter((ahead.get(name, 0) for name in backends.names), np.int64)


def ahead_by_ratio(ratio: Floats, before: Ints) -> Ints:
    """(n,) k of the formula, given what it was in the last tick; 1 at least.

    Examples
    --------
    Of backends that were taken as they came; then of some that waited for two:

    >>> ahead_by_ratio(np.array([1.5, 2.9, 3.0, 5.0, 40.0]), np.zeros(5, np.int64)).tolist()
    [1, 1, 2, 3, 3]
    >>> ahead_by_ratio(np.array([1.9, 2.0, 4.9, 5.0]), np.full(4, 2)).tolist()
    [1, 2, 2, 3]
    """
    begins = np.floor((1.0 + ratio) / 2.0).astype(np.int64)
    stays = np.floor(ratio).astype(np.int64)
    return np.clip(np.clip(before, begins, stays), 1, _MOST_AHEAD)
