"""Collecting: what is done stays done, what fails is tried again, nothing is half there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dial.errors import LabError
from dial_lab.session import SessionPlan, SessionRecord
from dial_lab.topology import LabBusy
from dial_training import collect
from dial_training.collect import Store, record_all, specs_of
from dial_training.dataset import Dataset
from dial_training.errors import ExperimentError
from dial_training.expand import SessionSpec
from dial_training.host import CpuTime, Use
from dial_training.progress import View

TEXT = """
set = "train"
seed = 5
resources = ["cpu", "net"]
loads = [0.2]
learn_s = 10.0

[[stages]]
count = 2
seconds = 8.0
victims = 1
rho_bg = [0.5]
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "out")


def view(specs: list[SessionSpec]) -> View:
    return View(Console(quiet=True), specs, len(specs))


def test_sessions_become_parts_and_parts_one_data_set(
    toml: Path, store: Store, lab_run: Callable[..., SessionRecord]
) -> None:
    specs = specs_of([toml])
    assert record_all(specs, store, view(specs), run=lab_run) == {}
    assert store.left(specs) == []
    assert not any(store.logs(spec).exists() for spec in specs)
    data = Dataset.load(store.merge(specs))
    assert {s.session for s in data.sessions} == {s.id for s in specs}
    assert collect.summary(data) == "2 cpu, 2 net, 8 none"


def test_a_broken_off_collection_goes_on_with_what_is_left(
    toml: Path, store: Store, lab_run: Callable[..., SessionRecord]
) -> None:
    first, second = specs = specs_of([toml])
    asked = []

    def interrupted(plan: SessionPlan, logs: Path, show: object) -> SessionRecord:
        asked.append(plan.resource)
        if plan is second.plan:
            raise KeyboardInterrupt
        return lab_run(plan, logs, show)

    with pytest.raises(KeyboardInterrupt):
        record_all(specs, store, view(specs), run=interrupted)
    assert asked == ["cpu", "net"]
    assert store.left(specs) == [second]
    assert [s.session for s in Dataset.load(store.merge(specs)).sessions] == [first.id]


def test_a_session_that_fails_is_tried_once_more_after_the_others(
    toml: Path, store: Store, lab_run: Callable[..., SessionRecord]
) -> None:
    specs = specs_of([toml])
    asked: list[str] = []

    def shaky(plan: SessionPlan, logs: Path, show: object) -> SessionRecord:
        asked.append(plan.resource)
        if asked == ["cpu"]:
            raise LabError("haproxy ended with code 1")
        return lab_run(plan, logs, show)

    assert record_all(specs, store, view(specs), run=shaky) == {}
    assert asked == ["cpu", "net", "cpu"]
    assert store.left(specs) == []


def test_a_session_waits_for_another_lab_to_end(
    toml: Path,
    store: Store,
    lab_run: Callable[..., SessionRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collect, "_BUSY_PAUSE_S", 0.0)
    spec = specs_of([toml])[0]
    asked = []

    def busy(plan: SessionPlan, logs: Path, show: object) -> SessionRecord:
        asked.append(plan.resource)
        if len(asked) < 4:
            raise LabBusy("another lab runs")
        return lab_run(plan, logs, show)

    said: list[str] = []
    collect.record(spec, store, busy, said.append)
    assert len(asked) == 4
    assert said == ["waiting: another lab runs"] * 3
    assert store.left([spec]) == []


def test_a_session_that_fails_twice_is_reported_and_keeps_its_logs(
    toml: Path, store: Store, lab_run: Callable[..., SessionRecord]
) -> None:
    broken, _ = specs = specs_of([toml])

    def failing(plan: SessionPlan, logs: Path, show: object) -> SessionRecord:
        record = lab_run(plan, logs, show)
        if plan is broken.plan:
            raise OSError("disk full")
        return record

    assert record_all(specs, store, view(specs), run=failing) == {broken.id: "OSError: disk full"}
    assert store.left(specs) == [broken]
    assert (store.logs(broken) / "recording.jsonl").exists()


def test_no_session_is_started_that_would_end_too_late(
    toml: Path, store: Store, lab_run: Callable[..., SessionRecord]
) -> None:
    specs = specs_of([toml])
    assert specs[0].plan.expected_s > 30.0
    assert record_all(specs, store, view(specs), run=lab_run, at_most_s=30.0) == {}
    assert store.left(specs) == specs


def test_the_same_session_in_two_experiments_is_refused(toml: Path) -> None:
    with pytest.raises(ExperimentError, match=r"small.toml: session train-cpu-20-1-\w+ is in"):
        specs_of([toml, toml])


def test_a_dry_run_says_what_it_would_take_and_leaves_nothing(toml: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = CliRunner().invoke(collect.app, [str(toml), "--out", str(out), "--dry-run"])
    assert said.exit_code == 0
    assert "train" in said.output
    # 12 s to start, 3 s warm-up, 10 s to learn, 8 s twice and 6 s between: 47 s, twice.
    assert "1.6" in said.output
    assert not out.exists()


def test_use_of_the_computer_is_what_is_neither_idle_nor_stolen(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1\n")
    before = CpuTime.read(stat)
    stat.write_text("cpu  160 0 70 900 60 0 0 10 0 0\ncpu0 1 1\n")
    # 200 ticks: 110 idle or waiting, 10 stolen, 80 used.
    assert Use.between(before, CpuTime.read(stat)) == Use(busy=pytest.approx(0.4), steal=0.05)
