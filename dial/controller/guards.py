"""Small rules that keep a plan from doing harm, each a function of its own.

Shares are fractions of the service's requests; limits are fractions of the even share
1/n, so that they mean the same for three backends and for three hundred.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dial.controller.state import Contention
from dial.settings import GuardSettings

_FLOOR = 0.1
"""Of the even share: six requests/s of 200 for three backends, a T_x every three seconds."""

_FLOOR_OF_TAIL = 1.0 / 3.0
"""Of the requests that may be slower than T_x.  For three backends and P90 it is ``_FLOOR``."""


def floor_share(fraction_of_even: float | None, backends: int, percentile: float) -> float:
    """The least share a backend keeps.

    Without it a backend that was emptied gives no samples, and nobody would ever learn
    that its neighbour has left.  But its requests are the slow ones: were they as many as may
    be slower than T_x, the service's T_x would be theirs, however well the others are shared.

    Parameters
    ----------
    fraction_of_even : as configured; without it the two limits above.
    backends : n.
    percentile : x of T_x.
    """
    if fraction_of_even is not None:
        return fraction_of_even / backends
    return min(_FLOOR / backends, _FLOOR_OF_TAIL * (1.0 - percentile / 100.0))


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


_FIRST_STAY_TICKS = 20
"""As Envoy ejects an outlier for longer each time; a shift and a release take some ten ticks."""


def stays(guards: GuardSettings, contention: Contention, tick: int) -> bool:
    """Whether load stays away whatever is seen: its neighbour has returned too soon before."""
    least = least_stay_ticks(contention.returns, 10 * guards.return_ticks)
    return tick - contention.since_tick < least


def least_stay_ticks(returns: int, most: int) -> int:
    """How long load stays away at least from a backend whose neighbour keeps returning.

    The first time as short as the evidence allows; then twice as long each time.  A neighbour
    that pulses, or one whose absence we keep imagining, must not make the weights pulse.
    """
    if returns == 0:
        return 0
    return min(_FIRST_STAY_TICKS << min(returns - 1, 30), most)


def panics(contended: int, usable: int, fraction: float) -> bool:
    """Whether too many look contended for any of them to be.

    So many neighbours do not come at once; and if they did, too few would be left to take
    the load.  (Envoy's panic threshold.)
    """
    return contended > fraction * usable


def changed_by_others(
    wanted: Mapping[str, int], before: Mapping[str, int], now: Mapping[str, int]
) -> tuple[str, ...]:
    """Backends whose weight in force is neither what we wanted nor what it was at the last tick.

    A write of ours that failed leaves the old weight, one that succeeded leaves the new one;
    anything else was somebody else: an admin, an agent of the balancer's, another controller.

    Parameters
    ----------
    wanted : weights by our last plan.
    before, now : in force at the last tick and at this one.
    """
    changed = [name for name, weight in now.items() if weight != before.get(name, weight)]
    return tuple(name for name in changed if now[name] != wanted.get(name))
