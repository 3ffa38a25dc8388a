r"""Hours from minutes: a recording drawn anew, block by block.

Problem
    How often something happens that happens once a day cannot be seen in some minutes of
    recording.  To draw single ticks from them at random would not do: what makes a false alarm
    is several slow ticks in a row, and they come in a row because one is slow for what the one
    before left behind.

Formula
    The stationary bootstrap: from tick i go on to the tick that was recorded after it, but with
    probability 1/L to one that is drawn at random; so blocks are consecutive ticks as they were
    recorded, of geometric length with mean L.  L has to be long beside the autocorrelation time

        tau = 1 + 2 (rho_1 + rho_2 + ...),

    rho_k the autocorrelation at lag k, up to the first that is not positive.

Regimes
    the load changes
        A tick has a *level*, that of the tenant's own load.  A block that is joined has to begin
        at the level of the tick that it takes the place of, so that load changes only where it did
        in the recording, and what comes with the change stays beside it.
    between two levels
        The tick in which the load changed has no level.  No block begins with it: it always
        follows the tick that it followed.
    end of a stretch
        After the last tick of a recorded stretch a new block begins at its level.

Source
    Politis and Romano, "The stationary bootstrap", JASA 89, 1994; joined where the states match:
    Carlstein et al., "Matched-block bootstrap for dependent data", Bernoulli 4, 1998.  tau is cut
    off as in Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7, 1992.

Departures
    The recording is not closed to a circle: its first ticks are no sequel of its last ones.  They
    are drawn a little more rarely for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


class Blocks:
    """What may follow what in a recording of n ticks.

    Parameters
    ----------
    levels
        (n,) level of each tick; ``None`` between two levels.
    goes_on
        (n,) whether the tick after it in this sequence was recorded right after it.
    mean_ticks
        L.

    Raises
    ------
    ValueError
        If there is no tick, a stretch begins or ends between two levels, or L is below 1.
    """

    def __init__(
        self, levels: Sequence[Hashable], goes_on: Sequence[bool], mean_ticks: float
    ) -> None:
        if mean_ticks < 1.0:
            raise ValueError(f"mean length of a block {mean_ticks:g}: allowed is 1 tick and more")
        if not levels:
            raise ValueError("no tick to draw from")
        if goes_on[-1]:
            raise ValueError(f"tick {len(levels) - 1}: goes on, but it is the last one")
        for at, level in enumerate(levels):
            if level is None and (not goes_on[at] or at == 0 or not goes_on[at - 1]):
                raise ValueError(f"tick {at}: a stretch begins or ends between two levels")
        self._levels = tuple(levels)
        self._goes_on = tuple(goes_on)
        self._leave = 1.0 / mean_ticks
        self._at_level: dict[Hashable, list[int]] = {}
        for at, level in enumerate(levels):
            if level is not None:
                self._at_level.setdefault(level, []).append(at)

    def draw(self, random: np.random.Generator) -> Iterator[int]:
        """Places of ticks, 0 to n - 1, without end."""
        starts = [at for places in self._at_level.values() for at in places]
        at = starts[random.integers(len(starts))]
        while True:
            yield at
            going_on = self._goes_on[at]
            level = self._levels[at + 1] if going_on else self._levels[at]
            # A tick between two levels always follows the one before it.
            if going_on and (level is None or random.random() >= self._leave):
                at += 1
            else:
                places = self._at_level[level]
                at = places[random.integers(len(places))]


def autocorrelation(
    series: Sequence[NDArray[np.float64]], goes_on: Sequence[NDArray[np.bool_]], lags: int
) -> NDArray[np.float64]:
    """Autocorrelation at lags 1 to ``lags``, over several series of equal law but for their mean.

    Parameters
    ----------
    series
        Each (n,), NaN where there is no value.
    goes_on
        For each, (n,): whether the value after it was recorded right after it.

    Returns
    -------
    (lags,)
        0 where no two values lie that far apart.
    """
    centred = [values - np.nanmean(values) for values in series]
    variance = float(np.nanmean(np.concatenate(centred) ** 2))
    found = np.zeros(lags)
    reach = [np.ones(len(values), dtype=np.bool_) for values in series]
    for lag in range(1, lags + 1):
        products = []
        for number, values in enumerate(centred):
            # Whether `lag` steps lead from here without a gap.
            reach[number] = reach[number][:-1] & goes_on[number][lag - 1 : -1]
            products.append((values[:-lag] * values[lag:])[reach[number]])
        joined = np.concatenate(products)
        known = joined[~np.isnan(joined)]
        found[lag - 1] = known.mean() / variance if known.size and variance > 0.0 else 0.0
    return found


def autocorrelation_time(correlations: NDArray[np.float64]) -> float:
    """Tau in ticks, from the autocorrelation at lags 1, 2, ...

    Examples
    --------
    >>> autocorrelation_time(np.array([0.5, 0.25, -0.1, 0.3]))
    2.5
    """
    negative = np.flatnonzero(correlations <= 0.0)
    last = int(negative[0]) if negative.size else correlations.size
    return 1.0 + 2.0 * float(correlations[:last].sum())
