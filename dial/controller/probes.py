"""Now and then a backend that is drained gets requests again, to see whether its neighbour is gone.

A backend without requests has no response times, so nobody would learn that it could serve again.
Under a round robin it keeps a floor share instead.  Under least connections that cannot be had: any
backend that is idle is as good as any other there, so that the smallest weight that is not 0 still
draws up to an even share of the load.  So the part of the load that the floor is of becomes a part
of the time: with a floor of a tenth of the even share the weight is 1 in one tick of ten.  Where
requests go by the delay that is to be expected an idle backend is passed over for a faster one,
unless its weight is for the moment what it was without the neighbour.

What a probe shows is looked at like any interval; once it speaks for the neighbour's absence,
the backend is asked in every tick until that is sure, or refuted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dial.controller.state import Contention, Shift
from dial.types import WeightMeaning


def with_probes(
    shift: Shift,
    contentions: Mapping[str, Contention],
    meaning: WeightMeaning,
    *,
    tick: int,
    floor_of_even: float,
    probing: Mapping[str, int],
) -> Shift:
    """Weights of drained backends: one that gets requests while they are probed, else 0.

    Parameters
    ----------
    shift : as wanted, probes aside; whoever has a share of 0 in it is drained.
    contentions : of each backend that has a neighbour, by this tick's verdict.
    meaning : of a weight.
    tick : its number.
    floor_of_even : least share of a backend, as a fraction of the even share; 0 asks for none.
    probing : the weight of each backend while it is probed.
    """
    if not meaning.zero_drains:
        return shift
    probes = {
        name: probing[name] if _due(contentions.get(name), tick, floor_of_even) else 0
        for name, share in shift.shares.items()
        if share == 0.0
    }
    return replace(shift, weights=shift.weights | probes) if probes else shift


def _due(contention: Contention | None, tick: int, floor_of_even: float) -> bool:
    if contention is None or floor_of_even <= 0.0:
        return False
    if contention.gone > 0.0:
        return True
    return (tick - contention.since_tick) % max(round(1.0 / floor_of_even), 1) == 0
