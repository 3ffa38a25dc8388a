"""Now and then a backend that says next to nothing gets requests, to see if its neighbour is gone.

A backend without requests has no response times, so nobody would learn that it could serve again.
Under a round robin it keeps a floor share instead.  Where requests in flight are counted that
cannot be had; so the part of the load that the floor is of becomes a part of the time, one tick of
ten with a floor of a tenth of the even share.

least connections
    Any backend that is idle is as good as any other, so that the smallest weight that is not 0
    still draws up to an even share of the load.  A victim is drained, and probed with that weight.
shortest expected delay
    Nobody is drained, and of a few backends the victim has requests enough.  Of many there is
    always one idle that is faster.  So who has said nothing of its neighbour for as many ticks is
    probed with all its weight until it has.  And whose neighbour has probably gone has all its
    weight, too: of few requests the rest of the evidence takes long, for an estimate that has
    fallen speaks of a weak neighbour, whom nothing tells from none (of a network, with 20
    requests a second, 16 s and more; never in one run of five).

What a probe shows is looked at like any interval; once it speaks for the neighbour's absence,
the backend is asked in every tick until that is sure, or refuted.  But whose neighbour has returned
too soon before, so that load has to stay away for a while, is asked in its turn only: its weight
would pulse with the neighbour otherwise.

The floor of a far tail is small: of P99.9 and three backends one tick of 1,000.  A neighbour of
whom nothing is known for that long has been forgotten before, and all of the load has come back
to one who may still be a victim; so it is asked when half of that time is over.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from dial.controller.state import Contention, Shift
from dial.types import WeightKind, WeightMeaning


def with_probes(
    shift: Shift,
    contentions: Mapping[str, Contention],
    meaning: WeightMeaning,
    *,
    tick: int,
    floor_of_even: float,
    expire_ticks: int,
    in_full: Mapping[str, int],
    likely_gone: float = math.inf,
    probed: Collection[str] = (),
    staying: Collection[str] = (),
) -> Shift:
    """Weights of those who are probed in this tick, and of those who were as they would be.

    Parameters
    ----------
    shift : as wanted; whoever has a share of 0 in it is drained.
    contentions : of each backend that has a neighbour, by this tick's verdict.
    meaning : of a weight.
    tick : its number.
    floor_of_even : least share of a backend, as a fraction of the even share; 0 asks for none.
    expire_ticks : after so many without a reading its neighbour is forgotten.
    in_full : the weight of each backend that can be used, without a neighbour.
    likely_gone : evidence from which on it has that weight, where requests go by delay.
    probed : who was probed until now.
    staying : from whom load has to stay away for now, whatever a probe shows.
    """
    every = _ticks_between(floor_of_even, expire_ticks) if floor_of_even > 0.0 else 0
    weights = shift.weights | shift.resting
    probes: dict[str, int] = {}
    for name, contention in contentions.items() if every else ():
        if name not in weights or name not in in_full:
            continue
        gone = 0.0 if name in staying else contention.gone
        if meaning.kind is WeightKind.SERVICE_RATE:
            silent = tick - max(contention.read_tick, contention.since_tick) >= every
            asked = gone > 0.0 if name in probed else gone >= likely_gone
            if silent or asked:
                probes[name] = in_full[name]
        elif meaning.zero_drains and shift.shares[name] == 0.0:
            due = gone > 0.0 or (tick - contention.since_tick) % every == 0
            if due:
                probes[name] = meaning.minimum
    if not probes and not shift.resting:
        return shift
    resting = {name: weights[name] for name in probes}
    return replace(shift, weights=weights | probes, resting=resting)


def _ticks_between(floor_of_even: float, expire_ticks: int) -> int:
    """From one probe to the next: the floor as a part of the time, unless one expires before."""
    every = round(1.0 / floor_of_even)
    return every if every < expire_ticks else max(1, expire_ticks // 2)
