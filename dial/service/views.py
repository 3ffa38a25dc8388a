"""What is shown of a snapshot, turned so that each backend is one row.

A snapshot keeps what was seen, decided and written apart, each with its own list of
backends.  A reader asks per backend.  The types are dataclasses, so that the service
derives its OpenAPI schema from them and the command line reads its answer back into the
very same values.  A value that is not there is ``{"reason": "..."}``; in a history, which
is for charts, it is ``null``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic_core import to_json

from dial.controller.baseline import Baselines
from dial.controller.snapshot import Snapshot
from dial.types import (
    Action,
    ApplyReport,
    BackendObservation,
    BackendPlan,
    Cause,
    Measured,
    Mode,
    NoData,
    Override,
    Plan,
    WeightMeaning,
)

_NO_PLAN = NoData("no plan has been made yet")
_NO_SIBLING = NoData("too little is learnt of it or of its siblings")


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is normal for one backend rests on this; what was there from the start is part of it."""

    intervals: int
    """Quiet intervals learnt, since there is this normal."""
    age_s: float
    """How long these were together."""
    times_siblings: Measured
    """How many times as slow as its siblings' it is, the own load taken out."""
    doubtful: bool
    """Whether that is surely enough for a neighbour that has been there from the start; or the
    machine is slower."""


@dataclass(frozen=True, slots=True)
class BackendState:
    """One backend: what was seen of it, what is held of it, what it is given."""

    name: str
    usable: bool
    requests: int
    errors: int
    rate_per_s: float
    in_flight: int
    t_x_ms: Measured
    t_x_requests: int
    """How many requests ``t_x_ms`` rests on."""
    expected_t_x_ms: Measured
    """What T_x was expected to be at most."""
    cause: Cause | None
    """``None`` until a plan has been made."""
    rho_fg: Measured
    rho_bg: Measured
    peak_rps: Measured
    evidence: tuple[str, ...]
    agent: str | None
    """Why there is no sample of its agent; ``None`` when there is one."""
    weight: int
    """In force at the load balancer."""
    weight_configured: int
    weight_planned: int | None
    share: Measured
    """Fraction of the service's requests, as planned."""
    override: Override | None
    """The operator's order, while there is one."""
    baseline: Baseline | None = None
    """``None`` until a plan has been made."""


@dataclass(frozen=True, slots=True)
class State:
    """The controller now."""

    version: str
    service: str
    adapter: str
    mode: Mode
    frozen_since_s: float | None
    """When an operator froze the weights; ``None`` while nothing is frozen."""
    percentile: float
    """The x of T_x, in percent."""
    interval_s: float
    """Length of a tick as configured."""
    started_s: float
    at_s: float
    tick: int | None
    action: Action | None
    reason: str | None
    """Why the plan does what it does."""
    trouble: str | None
    """Why the last tick made no plan."""
    meaning: WeightMeaning | None
    """How the load balancer reads a weight, and which it takes."""
    backends: tuple[BackendState, ...]
    changes: tuple[tuple[str, int], ...]
    """(backend, weight) that the plan wants to be changed."""
    report: ApplyReport | None
    """The last write to the load balancer."""


@dataclass(frozen=True, slots=True)
class BackendVerdict:
    """What is held of one backend, and why."""

    backend: str
    cause: Cause
    slow: bool
    """Whether it can serve less than before, whoever takes it."""
    summary: str
    """The evidence in one line."""
    evidence: tuple[str, ...]
    t_x_ms: Measured
    expected_t_x_ms: Measured
    rho_fg: Measured
    rho_bg: Measured
    peak_rps: Measured


@dataclass(frozen=True, slots=True)
class BackendHistory:
    """One backend over the ticks of a history; ``None`` where there was no value."""

    t_x_ms: list[float | None]
    expected_t_x_ms: list[float | None]
    rho_bg: list[float | None]
    weight: list[int | None]


@dataclass(frozen=True, slots=True)
class History:
    """The last ticks in columns, oldest first: what charts are drawn from."""

    at_s: list[float]
    backends: dict[str, BackendHistory]


def state_of(snapshot: Snapshot, *, version: str, percentile: float, interval_s: float) -> State:
    """Turn a snapshot into what is shown."""
    observation, plan = snapshot.observation, snapshot.plan
    return State(
        version=version,
        service=snapshot.service,
        adapter=snapshot.adapter,
        mode=snapshot.mode,
        frozen_since_s=snapshot.orders.frozen_since_s,
        percentile=percentile,
        interval_s=interval_s,
        started_s=snapshot.started_s,
        at_s=snapshot.at_s,
        tick=observation.tick if observation else None,
        action=plan.action if plan else None,
        reason=plan.reason if plan else None,
        trouble=snapshot.trouble,
        meaning=observation.meaning if observation else None,
        backends=rows_of(snapshot),
        changes=plan.changes if plan else (),
        report=snapshot.report,
    )


def rows_of(snapshot: Snapshot) -> tuple[BackendState, ...]:
    """Each backend's row; none where the last tick could not read the balancer."""
    if snapshot.observation is None:
        return ()
    planned = {b.name: b for b in snapshot.plan.backends} if snapshot.plan else {}
    orders = {order.backend: order for order in snapshot.orders.overrides}
    seen = snapshot.observation.backends
    baselines = _baselines(snapshot.baselines) if snapshot.baselines else [None] * len(seen)
    return tuple(
        _row(b, planned.get(b.name), orders.get(b.name), baseline)
        for b, baseline in zip(seen, baselines, strict=True)
    )


def _baselines(of: Baselines) -> list[Baseline | None]:
    ratios: list[Measured] = [
        _NO_SIBLING if math.isnan(ratio) else ratio for ratio in of.ratio.tolist()
    ]
    return [
        Baseline(learnt, learnt * of.interval_s, ratio, doubtful)
        for learnt, ratio, doubtful in zip(
            of.learnt.tolist(), ratios, of.doubtful.tolist(), strict=True
        )
    ]


def verdicts_of(plan: Plan, snapshot: Snapshot) -> list[BackendVerdict]:
    """Each backend's verdict in a plan."""
    seen = (
        {b.name: b.window.t_x_ms for b in snapshot.observation.backends}
        if (snapshot.observation)
        else {}
    )
    return [
        BackendVerdict(
            backend=b.name,
            cause=b.verdict.cause,
            slow=b.verdict.cause.costs_capacity or b.verdict.cause is Cause.UNKNOWN,
            summary="; ".join(b.verdict.evidence),
            evidence=b.verdict.evidence,
            t_x_ms=seen.get(b.name, _NO_PLAN),
            expected_t_x_ms=b.verdict.expected_t_x_ms,
            rho_fg=b.verdict.rho_fg,
            rho_bg=b.verdict.rho_bg,
            peak_rps=b.verdict.peak_rps,
        )
        for b in plan.backends
    ]


def history_json(snapshots: tuple[Snapshot, ...], backend: str | None = None) -> Iterator[bytes]:
    """A :class:`History` as JSON, of all backends of these ticks or of the one asked for.

    In pieces, some of which are empty: after each one something else may be done.
    """
    kept = [s for s in snapshots if s.observation is not None]
    columns: dict[str, BackendHistory] = {}
    for index, snapshot in enumerate(kept):
        verdicts = {b.name: b.verdict for b in snapshot.plan.backends} if snapshot.plan else {}
        for seen in snapshot.observation.backends if snapshot.observation else ():
            if backend not in (None, seen.name):
                continue
            nothing: list[None] = [None] * len(kept)
            column = columns.setdefault(
                seen.name, BackendHistory([*nothing], [*nothing], [*nothing], [*nothing])
            )
            column.t_x_ms[index] = _number(seen.window.t_x_ms)
            column.weight[index] = seen.server.weight
            verdict = verdicts.get(seen.name)
            if verdict is not None:
                column.expected_t_x_ms[index] = _number(verdict.expected_t_x_ms)
                column.rho_bg[index] = _number(verdict.rho_bg)
        yield b""
    yield b'{"at_s":%b,"backends":{' % to_json([s.at_s for s in kept])
    for number, (name, column) in enumerate(columns.items()):
        values = to_json(column, inf_nan_mode="null")
        yield b"%b%b:%b" % (b"," if number else b"", to_json(name), values)
    yield b"}}"


def _number(value: Measured) -> float | None:
    return None if isinstance(value, NoData) else value


def _row(
    seen: BackendObservation,
    planned: BackendPlan | None,
    order: Override | None,
    baseline: Baseline | None,
) -> BackendState:
    verdict = planned.verdict if planned else None
    return BackendState(
        name=seen.name,
        usable=seen.server.usable,
        requests=seen.window.requests,
        errors=seen.window.errors,
        rate_per_s=seen.window.rate_per_s,
        in_flight=seen.server.in_flight,
        t_x_ms=seen.window.t_x_ms,
        t_x_requests=seen.window.t_x_requests,
        expected_t_x_ms=verdict.expected_t_x_ms if verdict else _NO_PLAN,
        cause=verdict.cause if verdict else None,
        rho_fg=verdict.rho_fg if verdict else _NO_PLAN,
        rho_bg=verdict.rho_bg if verdict else _NO_PLAN,
        peak_rps=verdict.peak_rps if verdict else _NO_PLAN,
        evidence=verdict.evidence if verdict else (),
        agent=seen.sample.reason if isinstance(seen.sample, NoData) else None,
        weight=seen.server.weight,
        weight_configured=seen.server.configured_weight,
        weight_planned=planned.weight if planned else None,
        share=planned.share if planned else _NO_PLAN,
        override=order,
        baseline=baseline,
    )
