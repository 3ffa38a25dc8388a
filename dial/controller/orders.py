"""What operators order, laid over what the controller would do by itself.

Frozen
    Nothing is written and nothing is learnt to be written: the shift stays what it was, whatever
    is found meanwhile.  Verdicts go on, so that a person sees what would follow.

An override
    One backend has the weight that an operator gave it, the others what they have without that:
    weights are relative, so their shares change with it.  What the weight is underneath is kept,
    and wanted again as soon as the order has ended.  While there is one the weights are our own
    (:class:`~dial.controller.state.Shift`), so they are under the lease, nothing is learnt from
    the load they lead to, and whoever else writes a weight still is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import compress

import numpy as np

from dial.controller.split import LoadSplit, shares_in_force
from dial.controller.state import Shift
from dial.optimizer import shares_of_weights
from dial.seen import Seen
from dial.types import Action, Observation, Override


def as_frozen(shift: Shift | None, seen: Seen, observation: Observation) -> LoadSplit:
    """What is in force, and the shift as it was."""
    since = _clock(observation.orders.frozen_since_s or observation.now_s)
    reason = f"weights are frozen by an operator since {since}"
    return LoadSplit(shift, shares_in_force(seen), Action.FREEZE, reason)


def without_overrides(shift: Shift | None) -> Shift | None:
    """The shift as the controller alone wants it."""
    if shift is None or not shift.underneath:
        return shift
    return replace(shift, weights=shift.weights | shift.underneath, underneath={})


def with_overrides(
    split: LoadSplit, before: Shift | None, seen: Seen, observation: Observation
) -> LoadSplit:
    """Lay the overrides over a split.

    Parameters
    ----------
    split : as the controller alone wants it.
    before : what the last plan wanted, overrides included.
    seen : the backends of the observation.
    observation : of this tick; orders for backends that have left are passed over.
    """
    if not observation.orders.overrides and not (before and before.underneath):
        return split
    servers = {b.name: b.server for b in seen}
    orders = {o.backend: o for o in observation.orders.overrides if o.backend in servers}
    ended = [name for name in (before.underneath if before else {}) if name not in orders]
    if not orders and not ended:
        return split
    by_itself = split.action in (Action.SHIFT, Action.OVERLOAD, Action.PANIC)
    action = split.action if by_itself else Action.OVERRIDE
    # What would be a release is the end of an override, where no neighbour had moved anything.
    stays_away = split.action is Action.HOLD and split.shift is not None
    said = f"; {split.reason}" if by_itself or stays_away else ""
    if not orders:
        reason = f"the override of {', '.join(ended)} has ended{said}"
        return replace(split, action=action, reason=reason)
    usable = [server for server in servers.values() if server.usable]
    own = split.shift or Shift(
        dict(compress(zip(seen.names, split.shares.tolist(), strict=True), seen.usable)),
        {s.name: s.configured_weight for s in usable},
    )
    shift = replace(
        own,
        weights=own.weights | {name: order.weight for name, order in orders.items()},
        underneath={
            name: own.weights.get(name, servers[name].configured_weight) for name in orders
        },
    )
    shares = shares_of_weights([shift.weights.get(s.name, s.weight) for s in usable])
    planned = {s.name: float(share) for s, share in zip(usable, shares, strict=True)}
    return LoadSplit(
        shift,
        np.array([planned.get(name, 0.0) for name in servers]),
        action,
        f"an operator set {_in_words(orders.values())}{said}",
    )


def _in_words(orders: Iterable[Override]) -> str:
    return ", ".join(f"{o.backend} to {o.weight} until {_clock(o.until_s)}" for o in orders)


def _clock(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%H:%M:%S} UTC"
