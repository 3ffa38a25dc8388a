"""Labels: which tick lies where, and what is the matter with a machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dial.errors import RecordingError
from dial.types import Cause, Observation
from dial_lab.session import Neighbour, SessionPlan, SessionRecord, Span, Stage, StageRecord
from dial_training import label
from dial_training.errors import DatasetError
from dial_training.expand import SessionSpec

HOG = Neighbour("cpu", "stress-ng-cpu", 0.5)
STAGES = (
    Stage(8.0, 12.0, {"s1": HOG}, calibrate=True),
    Stage(10.0, rate_factor=1.5),
)
SPEC = SessionSpec("x-1", "train", SessionPlan("cpu", 0.4, STAGES, seed=3, learn_s=10.0))
RECORD = SessionRecord(
    recording=Path("none"),
    learn=Span(10.0, 20.0),
    stages=(
        StageRecord(Span(22.0, 30.0), {"s1": 0.48, "s2": 0.01, "s3": -0.02}),
        StageRecord(Span(42.0, 52.0), None),
    ),
    quiet_rps={"s1": 140.0, "s2": 141.0, "s3": 142.0},
    rate_per_s=170.0,
    late_p99_ms=0.2,
)


@pytest.mark.parametrize(
    ("now_s", "phase", "stage"),
    [
        (11.0, "edge", None),  # 9 to 11: the warm-up is in it
        (12.0, "learn", None),
        (20.0, "learn", None),
        (20.5, "rest", None),
        (22.0, "rest", None),
        (23.9, "edge", None),  # from 21.9: the neighbour came in it
        (24.0, "stage", 0),
        (30.0, "stage", 0),
        (30.1, "edge", None),
        (32.0, "rest", None),
        (44.0, "stage", 1),
        (52.0, "stage", 1),
        (54.0, "edge", None),  # the load has ended
    ],
)
def test_a_tick_belongs_to_what_its_whole_interval_lies_in(
    now_s: float, phase: str, stage: int | None, seen: Callable[..., Observation]
) -> None:
    assert label.place(RECORD, seen(1, now_s)) == (phase, stage)


def test_truth_names_neighbour_intensity_and_what_was_measured(
    seen: Callable[..., Observation],
) -> None:
    first, second, rest = label.label(SPEC, RECORD, [seen(1, 24.0), seen(2, 44.0), seen(3, 40.0)])
    hit, spared = first.truths["s1"], first.truths["s2"]
    assert (hit.label, hit.program, hit.rho_bg_asked) == (Cause.CPU, "stress-ng-cpu", 0.5)
    assert (hit.rho_bg_true, hit.case) == (0.48, "x-1/0/s1")
    assert (spared.label, spared.program, spared.rho_bg_asked) == (Cause.NONE, None, 0.0)
    assert spared.rho_bg_true == 0.01
    swung = second.truths["s1"]
    assert (swung.label, swung.rate_factor, swung.rho_bg_true) == (Cause.LOAD, 1.5, None)
    assert (rest.truths["s1"].case, rest.truths["s1"].label) == (None, Cause.NONE)


@pytest.mark.parametrize("lost", [0.15, -0.15])
def test_a_session_is_refused_whose_calibration_was_disturbed(lost: float) -> None:
    first, second = RECORD.stages
    off = replace(first, rho_bg={"s1": 0.48, "s2": 0.01, "s3": lost})
    label.check_calibration(SPEC, RECORD)
    with pytest.raises(DatasetError, match=r"stage 0 .* s3 has no neighbour and lost -?0\.15"):
        label.check_calibration(SPEC, replace(RECORD, stages=(off, second)))


def test_what_a_neighbour_took_is_not_off() -> None:
    first, second = RECORD.stages
    strong = replace(first, rho_bg={"s1": 0.9, "s2": 0.0, "s3": 0.0})
    label.check_calibration(SPEC, replace(RECORD, stages=(strong, second)))


def test_a_neighbour_weighs_more_than_a_change_of_the_own_load() -> None:
    stage = Stage(10.0, neighbours={"s2": HOG}, cost_factor=1.5)
    assert label.cause(stage, "s2") is Cause.CPU
    assert label.cause(stage, "s1") is Cause.LOAD
    assert label.cause(Stage(10.0), "s1") is Cause.NONE


def test_a_session_s_recording_becomes_a_data_set(
    lab_run: Callable[..., SessionRecord], tmp_path: Path
) -> None:
    data = label.dataset(SPEC, lab_run(SPEC.plan, tmp_path / "logs", None))
    (session,) = data.sessions
    assert (session.session, session.set, session.seed, session.load) == ("x-1", "train", 3, 0.4)
    # Stages from 113 to 121 and 133 to 143, ticks end at even seconds: 116 to 120, 136 to 142.
    cases = {case.case: len(case.at) for case in session.cases()}
    assert cases == {f"x-1/{n}/s{m}": 3 + n for n in (0, 1) for m in (1, 2, 3)}
    assert data.setting.percentile == 90.0


def test_an_empty_recording_and_a_restarted_balancer_are_refused(
    lab_run: Callable[..., SessionRecord], tmp_path: Path
) -> None:
    record = lab_run(SPEC.plan, tmp_path / "logs", None)
    lines = record.recording.read_text().splitlines(keepends=True)
    record.recording.write_text("".join([*lines[:-1], lines[-1].replace("4711", "4712")]))
    with pytest.raises(DatasetError, match=r"the balancer was restarted"):
        label.dataset(SPEC, record)
    record.recording.write_text(lines[0])
    with pytest.raises(DatasetError, match=r"no tick in it"):
        label.dataset(SPEC, record)
    record.recording.unlink()
    with pytest.raises(RecordingError):
        label.dataset(SPEC, record)
