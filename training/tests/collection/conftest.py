"""A session's recording without a lab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dial.controller.policy import PolicySource
from dial.controller.recording import Recorder
from dial.controller.state import State
from dial.model import STARTER, load_model
from dial.settings import RecordSettings, Settings
from dial.types import (
    Action,
    BackendObservation,
    NoData,
    Observation,
    Plan,
    RequestWindow,
    ServerState,
    WeightKind,
    WeightMeaning,
)
from dial_lab.request import MACHINES
from dial_lab.session import SessionPlan, SessionRecord, Span, StageRecord

MEANING = WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True)


def _backend(name: str, tick: int) -> BackendObservation:
    window = RequestWindow(
        requests=20,
        errors=0,
        rate_per_s=10.0,
        t_x_ms=5.0 + tick,
        t_x_requests=20,
        t_mean_ms=3.0,
        t_c_ms=NoData("no new connection"),
    )
    server = ServerState(name, 100, 100, True, 0, 20 * tick, 0)
    return BackendObservation(name, window, NoData("no agent"), server)


@pytest.fixture
def seen() -> Callable[[int, float, float], Observation]:
    """An observation of a tick that ended at a moment and lasted some seconds."""

    def make(tick: int, now_s: float, interval_s: float = 2.0) -> Observation:
        return Observation(
            tick=tick,
            now_s=now_s,
            interval_s=interval_s,
            epoch="4711",
            algorithm="roundrobin",
            meaning=MEANING,
            backends=tuple(_backend(name, tick) for name in MACHINES),
            model_checksum="some",
        )

    return make


@pytest.fixture
def lab_run(
    seen: Callable[[int, float, float], Observation],
) -> Callable[[SessionPlan, Path, object], SessionRecord]:
    """What ``run_session`` does, in a second's fraction: ticks of 2 s from second 100 on."""

    def run(plan: SessionPlan, directory: Path, _: object) -> SessionRecord:
        directory.mkdir(parents=True)
        recording = directory / "recording.jsonl"
        settings = Settings.model_validate(
            {"service": "app", "adapter": {"name": "haproxy"}, "percentile": plan.percentile}
        )
        source = PolicySource.of(settings, load_model(STARTER))
        recorder = Recorder(RecordSettings(path=recording), source)
        at_s = 103.0
        learn = Span(at_s, at_s + plan.learn_s)
        at_s = learn.end_s
        stages = []
        for stage in plan.stages:
            lost = dict.fromkeys(MACHINES, 0.0)
            lost |= {name: n.rho_bg for name, n in stage.neighbours.items()}
            span = Span(at_s, at_s + stage.seconds)
            stages.append(StageRecord(span, lost if stage.calibrate else None))
            at_s += stage.seconds + stage.rest_s
        for tick in range(1, int((at_s - 100.0) / 2) + 1):
            observation = seen(tick, 100.0 + 2.0 * tick, 2.0)
            recorder.tick(State(), observation, Plan(tick, observation.now_s, Action.HOLD, "", ()))
        recorder.close()
        quiet_rps = dict.fromkeys(MACHINES, 140.0)
        return SessionRecord(recording, learn, tuple(stages), quiet_rps, 100.0, 0.1)

    return run
