"""A controller's life on a recording drawn anew, beside a balancer that takes its weights.

The product's own ``step`` is folded over the ticks drawn, its state carried along from the
first one: it has to learn first, as it would.  Weights that a plan wants are in force from
the next tick on.

A *false mitigation* is a plan that wants other weights than the configured ones while those
are in force: nobody was there.  From then on observations and weights do not match (the
recording was made with even weights), so the controller is neither judged nor is the time
counted until it has handed the load back by itself, or, after ten minutes, was started anew.
What it sees in the meantime is a backend as busy as ever, and never emptier, so how long it keeps
load away means nothing here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.support.bootstrap import Blocks
from benchmarks.support.quiet import Kind, Level, Stratum
from dial.controller.policy import Policy
from dial.controller.state import State
from dial.controller.step import step
from dial.types import BackendObservation, BackendPlan, NoData, Observation, Plan

_LONGEST_S = 600.0
"""After so long somebody notices, and starts the controller anew."""

_RUN = 8
"""Ticks that are shown of what led to a mitigation."""


@dataclass(frozen=True, slots=True)
class FalseMitigation:
    """One plan that moved load for nothing.

    Attributes
    ----------
    kind, session
        Of the stratum.
    at_h
        Since the controller's start.
    tick, level
        Of the observation that was the last straw, as recorded.
    backends
        Those that are to get less: (name, cause, evidence).
    run
        Recorded ticks that led there, this one the last.
    """

    kind: Kind
    session: str
    at_h: float
    tick: int
    level: Level | None
    backends: tuple[tuple[str, str, tuple[str, ...]], ...]
    run: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """What became of one controller.

    Attributes
    ----------
    stratum
        Its number.
    ticks
        Lived through.
    at_risk_s, shifted_s
        Time with the configured weights in force, and with others.
    load_changes
        From one level of the tenant's own load to another, in the time at risk.
    above
        Intervals of a backend, at risk, with T_x above what was expected.
    suspected
        Those that looked like a neighbour, so that rho_bg was estimated, and moved no load.
    verdicts
        Verdicts at risk that moved no load, by cause.
    mitigations
        In order.
    """

    stratum: int
    ticks: int = 0
    at_risk_s: float = 0.0
    shifted_s: float = 0.0
    load_changes: int = 0
    above: int = 0
    suspected: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    mitigations: tuple[FalseMitigation, ...] = ()


def live(
    policy: Policy,
    stratum: Stratum,
    number: int,
    *,
    ticks_at_risk: int,
    block_ticks: float,
    seed: tuple[int, ...],
) -> Life:
    """Live until ``ticks_at_risk`` ticks were at risk.

    Parameters
    ----------
    policy : the product's.
    stratum, number : what to draw from, and its number for the record.
    block_ticks : mean length of a block.
    seed : of the drawing; the same one gives the same life.
    """
    places = Blocks(stratum.levels, stratum.goes_on, block_ticks).draw(np.random.default_rng(seed))
    state, in_force = State(), _configured(stratum.observations[0])
    now_s = start_s = stratum.observations[0].now_s
    level: Level | None = None
    ticks = at_risk = load_changes = above = suspected = 0
    at_risk_s = shifted_s = this_time_s = 0.0
    verdicts: Counter[str] = Counter()
    mitigations: list[FalseMitigation] = []
    run: list[int] = []
    while at_risk < ticks_at_risk:
        place = next(places)
        recorded = stratum.observations[place]
        ticks, now_s = ticks + 1, now_s + recorded.interval_s
        observation = _with_weights(recorded, in_force, ticks, now_s)
        untouched = in_force == _configured(recorded)
        state, plan = step(policy, state, observation)
        before, in_force = in_force, in_force | dict(plan.changes)
        run = [*run[-(_RUN - 1) :], recorded.tick]
        if not untouched:
            shifted_s += recorded.interval_s
            this_time_s += recorded.interval_s
            if this_time_s >= _LONGEST_S:
                state, in_force = State(), _configured(recorded)
            continue
        this_time_s = 0.0
        at_risk, at_risk_s = at_risk + 1, at_risk_s + recorded.interval_s
        load_changes += level not in (None, stratum.levels[place] or level)
        level = stratum.levels[place] or level
        if plan.changes:
            mitigations.append(
                FalseMitigation(
                    stratum.kind,
                    stratum.session,
                    (now_s - start_s) / 3600.0,
                    recorded.tick,
                    stratum.levels[place],
                    tuple(_losing(plan, before)),
                    tuple(run),
                )
            )
            continue
        for backend, planned in zip(recorded.backends, plan.backends, strict=True):
            verdicts[planned.verdict.cause.value] += 1
            above += _is_above(backend, planned)
            suspected += not isinstance(planned.verdict.rho_bg, NoData)
    return Life(
        stratum=number,
        ticks=ticks,
        at_risk_s=at_risk_s,
        shifted_s=shifted_s,
        load_changes=load_changes,
        above=above,
        suspected=suspected,
        verdicts=verdicts,
        mitigations=tuple(mitigations),
    )


def _configured(seen: Observation) -> dict[str, int]:
    return {backend.name: backend.server.configured_weight for backend in seen.backends}


def _with_weights(
    recorded: Observation, in_force: dict[str, int], tick: int, now_s: float
) -> Observation:
    """The observation as the balancer and the clock would have it now."""
    backends = recorded.backends
    if any(backend.server.weight != in_force[backend.name] for backend in backends):
        backends = tuple(
            replace(backend, server=replace(backend.server, weight=in_force[backend.name]))
            for backend in backends
        )
    return replace(recorded, tick=tick, now_s=now_s, backends=backends)


def _losing(plan: Plan, in_force: dict[str, int]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Backends whose share of the weights is to fall."""
    before, after = sum(in_force.values()), sum(plan.weights.values())
    return [
        (one.name, one.verdict.cause.value, one.verdict.evidence)
        for one in plan.backends
        if one.weight * before < in_force[one.name] * after
    ]


def _is_above(seen: BackendObservation, planned: BackendPlan) -> bool:
    t_x_ms, upper_ms = seen.window.t_x_ms, planned.verdict.expected_t_x_ms
    if isinstance(t_x_ms, NoData) or isinstance(upper_ms, NoData):
        return False
    return t_x_ms > upper_ms
