"""What the hypervisor took of cores, and what becomes of blocks in which it took some."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dial_lab.loadgen import Results
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult, policy_figures
from dial_lab.stolen import MOST_STOLEN, Steal
from dial_lab.undisturbed import BLOCK_TRIES, STOLEN_PAUSE_S, undisturbed

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


class Blocks:
    """Blocks of which so much was stolen; each leaves a file that says which it is."""

    def __init__(self, *stolen: float) -> None:
        self._stolen = iter(stolen)
        self.run = 0

    def __call__(self, directory: Path) -> BlockResult:
        directory.mkdir()
        (directory / "number").write_text(str(self.run))
        self.run += 1
        return block(next(self._stolen))


def block(stolen: float) -> BlockResult:
    none = np.zeros(0, dtype=np.int16)
    nothing = Results(np.zeros(0), np.zeros(0), np.zeros(0), none, none, ("s1",))
    return BlockResult("dial", Phases(1.0, 1.0, 1.0), nothing, None, stolen=stolen)


def nobody() -> None:
    """No strangers, whenever they are looked for."""


@pytest.fixture
def pauses_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []
    monkeypatch.setattr("dial_lab.undisturbed.time.sleep", made.append)
    return made


def test_a_block_of_whose_cores_much_was_stolen_is_run_again_after_a_pause(
    tmp_path: Path, pauses_s: list[float]
) -> None:
    blocks, notes = Blocks(0.25, MOST_STOLEN), list[str]()
    found = undisturbed(blocks, tmp_path / "1-dial", nobody, nobody, notes.append)
    assert (found.stolen, pauses_s) == (MOST_STOLEN, [STOLEN_PAUSE_S])
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert (tmp_path / "1-dial-disturbed-1" / "number").read_text() == "0"
    assert len(notes) == 1
    assert "for 25.0% of the time the hypervisor ran somebody else" in notes[0]
    assert notes[0].endswith("it does not count (try 1 of 5)")


def test_where_cores_are_always_stolen_the_least_disturbed_block_counts(
    tmp_path: Path, pauses_s: list[float]
) -> None:
    notes: list[str] = []
    blocks = Blocks(0.3, 0.1, 0.05, 0.2, 0.4)
    found = undisturbed(blocks, tmp_path / "1-dial", nobody, nobody, notes.append)
    assert (found.stolen, blocks.run, len(pauses_s)) == (0.05, BLOCK_TRIES, BLOCK_TRIES - 1)
    assert notes[-1].endswith("it counts, there was none better")


def test_the_report_says_how_much_was_stolen_in_each_block() -> None:
    assert policy_figures([block(0.0), block(0.01234)], 0.5)["stolen"] == [0.0, 0.0123]
