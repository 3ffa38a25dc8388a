"""From a session's recording and plan to labelled ticks.

A tick belongs to a stage when its whole interval lies within it.  The tick in which a
neighbour came or went saw both states, and no label is right for it.

The label of a machine in a stage is what its neighbour takes; without a neighbour ``load``
where the tenant's own rate or cost is changed, else ``none``.

A session is refused, and has to be recorded anew, where its calibration cannot be right: a machine
that had no neighbour is measured to have lost capacity, or won some.  Then somebody outside the lab
was at work, in that measurement or in the one it is compared with, and of the machines that had a
neighbour nothing is known either.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dial.controller.recording import Recording
from dial.types import Cause, Observation
from dial_lab.session import SessionPlan, SessionRecord, Span, Stage
from dial_training.dataset import (
    EDGE,
    LEARN,
    REST,
    STAGE,
    Dataset,
    LabelledTick,
    Session,
    Setting,
    Truth,
)
from dial_training.errors import DatasetError
from dial_training.expand import SessionSpec

MOST_OFF = 0.1
"""Capacity that a machine without a neighbour may be measured to have lost or won: twice what it
was off by, at most, in all sessions that nobody outside disturbed."""


def dataset(spec: SessionSpec, record: SessionRecord) -> Dataset:
    """A data set of one session.

    Raises
    ------
    DatasetError
        If the recording is empty, the balancer was restarted in it, or the calibration is off.
    RecordingError
        If it is damaged.
    """
    check_calibration(spec, record)
    observations = [tick.observation for tick in Recording(record.recording).ticks()]
    session = Session(
        session=spec.id,
        set=spec.set,
        resource=spec.plan.resource,
        load=spec.plan.load,
        seed=spec.plan.seed,
        guest=spec.plan.guest,
        quiet_rps=record.quiet_rps,
        ticks=tuple(label(spec, record, observations)),
    )
    return Dataset(_setting(spec.plan, observations, record.recording), (session,))


def check_calibration(spec: SessionSpec, record: SessionRecord) -> None:
    """Refuse a session whose machines without a neighbour lost or won capacity.

    Raises
    ------
    DatasetError
        If one did, by more than :data:`MOST_OFF`.
    """
    for number, (stage, measured) in enumerate(zip(spec.plan.stages, record.stages, strict=True)):
        for machine, lost in (measured.rho_bg or {}).items():
            if machine not in stage.neighbours and abs(lost) > MOST_OFF:
                raise DatasetError(
                    f"{spec.id}: stage {number} was calibrated while something outside was at "
                    f"work: {machine} has no neighbour and lost {lost:.2f} of its capacity "
                    f"(allowed: {MOST_OFF:g} either way)"
                )


def label(
    spec: SessionSpec, record: SessionRecord, observations: Iterable[Observation]
) -> Iterable[LabelledTick]:
    """Each observation with what was true of its machines."""
    for observation in observations:
        phase, number = place(record, observation)
        stage = Stage(0.0) if number is None else spec.plan.stages[number]
        lost = None if number is None else record.stages[number].rho_bg
        truths = {}
        for backend in observation.backends:
            neighbour = stage.neighbours.get(backend.name)
            truths[backend.name] = Truth(
                phase=phase,
                stage=number,
                case=None if number is None else f"{spec.id}/{number}/{backend.name}",
                label=cause(stage, backend.name),
                program=None if neighbour is None else neighbour.program,
                rho_bg_asked=0.0 if neighbour is None else neighbour.rho_bg,
                rho_bg_true=None if lost is None else lost[backend.name],
                rate_factor=stage.rate_factor,
                cost_factor=stage.cost_factor,
            )
        yield LabelledTick(observation, truths)


def cause(stage: Stage, machine: str) -> Cause:
    """What is the matter with a machine in a stage."""
    if machine in stage.neighbours:
        return Cause(stage.neighbours[machine].resource)
    changed = (stage.rate_factor, stage.cost_factor) != (1.0, 1.0)
    return Cause.LOAD if changed else Cause.NONE


def place(record: SessionRecord, observation: Observation) -> tuple[str, int | None]:
    """Phase of a tick, and the number of its stage."""
    begin_s, end_s = observation.now_s - observation.interval_s, observation.now_s
    for number, stage in enumerate(record.stages):
        if _within(stage.span, begin_s, end_s):
            return STAGE, number
        if begin_s < stage.span.end_s and stage.span.begin_s < end_s:
            return EDGE, None
    if _within(record.learn, begin_s, end_s):
        return LEARN, None
    # Before the load is wholly there, and after its end.
    first_s, last_s = record.learn.begin_s, record.stages[-1].span.end_s
    return (REST if first_s <= begin_s and end_s <= last_s else EDGE), None


def _within(span: Span, begin_s: float, end_s: float) -> bool:
    return span.begin_s <= begin_s and end_s <= span.end_s


def _setting(plan: SessionPlan, observations: list[Observation], recording: Path) -> Setting:
    if not observations:
        raise DatasetError(f"{recording}: no tick in it")
    first = observations[0]
    if any(seen.epoch != first.epoch for seen in observations):
        raise DatasetError(f"{recording}: the balancer was restarted during the session")
    return Setting(plan.percentile, first.algorithm, first.meaning)
