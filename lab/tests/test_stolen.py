"""What the hypervisor took of cores, and what becomes of blocks in which it took some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dial_lab.stolen import PAUSE_S, Patience, Steal

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def stat(path: Path, *stolen_s: float) -> Path:
    """As the kernel writes it, of so many cores."""
    cores = [
        f"cpu{core} 9 9 9 9 9 9 9 {round(one * TICKS_PER_S)} 9 9"
        for core, one in enumerate(stolen_s)
    ]
    path.write_text("\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *cores, "intr 1 2", ""]))
    return path


@pytest.fixture
def clock_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("dial_lab.stolen.time.monotonic", lambda: now[0])
    return now


def test_the_core_that_lost_most_since_it_was_looked_at_counts(
    tmp_path: Path, clock_s: list[float]
) -> None:
    path = tmp_path / "stat"
    steal = Steal([0, 2], stat(path, 1.0, 1.0, 5.0))
    clock_s[0] += 10.0
    stat(path, 1.5, 9.0, 6.0)  # nobody asked about the second core
    assert steal.part() == pytest.approx(0.1)


def test_a_kernel_that_counts_no_steal_has_none_stolen(
    tmp_path: Path, clock_s: list[float]
) -> None:
    path = tmp_path / "stat"
    path.write_text("cpu  1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1\n")
    steal = Steal([0], path)
    clock_s[0] += 10.0
    assert steal.part() == 0.0


def test_of_this_computers_cores_no_more_is_stolen_than_time_went_by() -> None:
    assert 0.0 <= Steal(os.sched_getaffinity(0)).part() <= 1.0


class Hypervisor:
    """Takes a part of each second of one core, for so long, by a clock that only moves by it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *parts: float) -> None:
        self.path = stat(path, 0.0, 0.0)
        self.pauses_s: list[float] = []
        self._parts, self._stolen_s, self._now_s = iter(parts), 0.0, 0.0
        self._part = 0.0
        self.looked_at: list[int] = []
        monkeypatch.setattr("dial_lab.stolen.time.monotonic", self._tick)
        monkeypatch.setattr("dial_lab.stolen.time.sleep", self._sleep)
        monkeypatch.setattr("dial_lab.stolen.os.sched_getaffinity", lambda _: {0, 1})
        monkeypatch.setattr("dial_lab.stolen.os.sched_setaffinity", self._move)

    def _move(self, _: int, cores: set[int]) -> None:
        if len(cores) == 1:
            self.looked_at += cores
            if cores == {1}:
                self._part = next(self._parts)
        else:
            self._part = 0.0

    def _tick(self) -> float:
        self._now_s += 0.01
        self._stolen_s += 0.01 * self._part
        stat(self.path, 0.0, self._stolen_s)
        return self._now_s

    def _sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self._now_s += pause_s


def test_who_takes_the_cores_is_waited_for_and_it_is_said_for_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hypervisor, notes = Hypervisor(tmp_path / "stat", monkeypatch, 0.5, 0.3, 0.0), list[str]()
    patience = Patience(600.0, hypervisor.path)
    patience.wait([1, 0], notes.append)
    assert hypervisor.pauses_s == [PAUSE_S] * 2
    assert hypervisor.looked_at == [0, 1] * 3
    assert patience.left_s == 600.0 - 2 * PAUSE_S
    assert len(notes) == 2
    assert notes[0].startswith("for 5")
    assert notes[0].endswith("waiting for 10 minutes at most")
    assert notes[1].startswith("waited for the hypervisor for 0.8 minutes: it has left")


def test_cores_that_are_left_alone_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hypervisor, notes = Hypervisor(tmp_path / "stat", monkeypatch, 0.0), list[str]()
    Patience(600.0, hypervisor.path).wait([0, 1], notes.append)
    assert (hypervisor.pauses_s, notes) == ([], [])


def test_patience_is_spent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hypervisor, notes = Hypervisor(tmp_path / "stat", monkeypatch, *[0.5] * 9), list[str]()
    patience = Patience(30.0, hypervisor.path)
    patience.wait([0, 1], notes.append)
    assert hypervisor.pauses_s == [PAUSE_S, 30.0 - PAUSE_S]
    assert notes[-1].endswith("it has not, and no more is waited for")
    looked_at = len(hypervisor.looked_at)
    patience.wait([0, 1], notes.append)
    assert (len(hypervisor.looked_at), len(notes)) == (looked_at, 2)


def test_the_lab_is_on_its_own_cores_again_after_a_look(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    Patience(PAUSE_S, stat(tmp_path / "stat", *[0.0] * (max(before) + 1))).wait(before, print)
    assert os.sched_getaffinity(0) == before
