"""What ``/v1/state`` answers: one snapshot, turned so that each backend is one row.

A snapshot keeps what was seen, decided and written apart, each with its own list of
backends.  A reader asks per backend.  The types are dataclasses, so that the service
derives its OpenAPI schema from them and the command line reads its answer back into the
very same values.  A value that is not there is ``{"reason": "..."}``.
"""

from __future__ import annotations

from dataclasses import dataclass

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
)

_NO_PLAN = NoData("no plan has been made yet")


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


@dataclass(frozen=True, slots=True)
class State:
    """The controller now."""

    version: str
    service: str
    adapter: str
    mode: Mode
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
    backends: tuple[BackendState, ...]
    changes: tuple[tuple[str, int], ...]
    """(backend, weight) that the plan wants to be changed."""
    report: ApplyReport | None
    """The last write to the load balancer."""


def state_of(snapshot: Snapshot, *, version: str, percentile: float, interval_s: float) -> State:
    """Turn a snapshot into what is shown."""
    observation, plan = snapshot.observation, snapshot.plan
    planned = {b.name: b for b in plan.backends} if plan else {}
    seen = observation.backends if observation else ()
    return State(
        version=version,
        service=snapshot.service,
        adapter=snapshot.adapter,
        mode=snapshot.mode,
        percentile=percentile,
        interval_s=interval_s,
        started_s=snapshot.started_s,
        at_s=snapshot.at_s,
        tick=observation.tick if observation else None,
        action=plan.action if plan else None,
        reason=plan.reason if plan else None,
        trouble=snapshot.trouble,
        backends=tuple(_row(b, planned.get(b.name)) for b in seen),
        changes=plan.changes if plan else (),
        report=snapshot.report,
    )


def _row(seen: BackendObservation, planned: BackendPlan | None) -> BackendState:
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
    )
