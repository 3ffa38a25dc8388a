"""What becomes of blocks that somebody outside the lab disturbed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dial.errors import LabUnquiet
from dial_lab.loadgen import Results
from dial_lab.one_cache import Apart
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult, lateness_ms, policy_figures
from dial_lab.stolen import MOST_STOLEN
from dial_lab.undisturbed import BLOCK_TRIES, STOLEN_PAUSE_S, undisturbed


def block(
    apart: Apart | None = None,
    stolen: float = 0.0,
    slowdown: float | None = None,
    late_ms: float = 0.0,
) -> BlockResult:
    one = np.zeros(1, dtype=np.int16)
    results = Results(np.zeros(1), np.full(1, late_ms), np.ones(1), one, one, ("s1",))
    return BlockResult("dial", Phases(1.0, 1.0, 1.0), results, None, apart, None, stolen, slowdown)


class Blocks:
    """These blocks, one by one; each leaves a file that says which it is."""

    def __init__(self, *found: BlockResult) -> None:
        self._found = iter(found)
        self.run = 0

    def __call__(self, directory: Path) -> BlockResult:
        directory.mkdir()
        (directory / "number").write_text(str(self.run))
        self.run += 1
        return next(self._found)


def beside(*apart: Apart | None) -> Blocks:
    return Blocks(*map(block, apart))


def slow_by(*slowdowns: float) -> Blocks:
    return Blocks(*(block(slowdown=slowdown) for slowdown in slowdowns))


def late_by(*late_ms: float) -> Blocks:
    return Blocks(*(block(late_ms=each) for each in late_ms))


def stolen_of(*parts: float) -> Blocks:
    return Blocks(*(block(stolen=part) for part in parts))


class Strangers:
    """There at these of the times at which they are looked for."""

    def __init__(self, *there: bool) -> None:
        self._there = iter(there)

    def __call__(self) -> None:
        if next(self._there):
            raise LabUnquiet("cache: somebody is there")


class Nobody:
    """Outside the lab, whenever it is looked at, but for those who are given."""

    def __init__(
        self,
        slow_cores: Callable[[], None] = lambda: None,
        take_the_resource: Callable[[], None] = lambda: None,
        most_slowdown: float = math.inf,
    ) -> None:
        self.most_slowdown = most_slowdown
        self._slow_cores, self._take_the_resource = slow_cores, take_the_resource
        self.waited_for = 0

    def require_quick_cores(self) -> None:
        self._slow_cores()

    def require_alone(self) -> None:
        self._take_the_resource()

    def await_own_cores(self, note: Callable[[str], None]) -> None:
        self.waited_for += 1


@pytest.fixture
def pauses_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Of blocks, and of whoever waits for strangers: all sleep by the same clock."""
    made: list[float] = []
    monkeypatch.setattr("dial_lab.undisturbed.time.sleep", made.append)
    return made


def test_a_block_beside_a_neighbour_that_is_there_is_run_once(tmp_path: Path) -> None:
    blocks = beside(Apart(0.02, 0.1))
    notes: list[str] = []
    assert undisturbed(blocks, tmp_path / "1-dial", Nobody(), notes.append).apart == Apart(
        0.02, 0.1
    )
    assert (blocks.run, notes) == (1, [])


def test_a_block_of_which_nobody_watched_the_cache_is_run_once(tmp_path: Path) -> None:
    blocks = beside(None)
    assert undisturbed(blocks, tmp_path / "1-dial", Nobody(), [].append).apart is None
    assert blocks.run == 1


def test_a_block_whose_neighbour_was_elsewhere_is_run_again_and_kept_beside_it(
    tmp_path: Path,
) -> None:
    blocks = beside(Apart(0.4, 0.3), Apart(0.0, 0.0))
    notes: list[str] = []
    assert undisturbed(blocks, tmp_path / "1-dial", Nobody(), notes.append).apart == Apart(0.0, 0.0)
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert (tmp_path / "1-dial-disturbed-1" / "number").read_text() == "0"
    assert len(notes) == 1
    assert "for 40% of the neighbour's time and 30% of its first 5 s" in notes[0]


def test_where_the_cores_stay_apart_the_least_disturbed_block_counts(tmp_path: Path) -> None:
    found = (Apart(0.5, 0.0), Apart(0.4, 0.0), Apart(0.2, 0.1), Apart(0.05, 0.9), Apart(0.6, 0.0))
    blocks = beside(*found, None)
    notes: list[str] = []
    assert undisturbed(blocks, tmp_path / "1-dial", Nobody(), notes.append).apart == Apart(0.2, 0.1)
    assert blocks.run == 5
    assert (tmp_path / "1-dial" / "number").read_text() == "2"
    assert len(notes) == 5
    assert all("it does not count" in note for note in notes[:-1])
    assert notes[-1].endswith("it counts, there was none better")


def test_a_block_of_a_run_before_that_was_kept_in_the_same_place_is_replaced(
    tmp_path: Path,
) -> None:
    (tmp_path / "1-dial-disturbed-1").mkdir()
    (tmp_path / "1-dial-disturbed-1" / "number").write_text("old")
    undisturbed(beside(Apart(0.4, 0.3), None), tmp_path / "1-dial", Nobody(), [].append)
    assert (tmp_path / "1-dial-disturbed-1" / "number").read_text() == "0"


def test_a_block_after_which_strangers_are_there_is_run_again_without_what_it_left(
    tmp_path: Path,
) -> None:
    blocks, notes = beside(None, None), list[str]()
    undisturbed(
        blocks,
        tmp_path / "1-dial",
        Nobody(take_the_resource=Strangers(False, True, False, False)),
        notes.append,
    )
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert notes == ["dial: cache: somebody is there; it does not count (try 1 of 5)"]


def test_a_block_in_which_the_cores_were_slow_is_run_again_without_what_it_left(
    tmp_path: Path,
) -> None:
    blocks, notes = beside(Apart(0.0, 0.0, 0.6), Apart(0.0, 0.0, 0.2)), list[str]()
    found = undisturbed(blocks, tmp_path / "1-dial", Nobody(), notes.append)
    assert found.apart == Apart(0.0, 0.0, 0.2)
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert len(notes) == 1
    assert "for 60% of the time a line took 18 ns and more" in notes[0]
    with pytest.raises(LabUnquiet, match="somebody outside the lab slows them"):
        undisturbed(
            beside(*[Apart(0.0, 0.0, 0.6)] * 5), tmp_path / "2-dial", Nobody(), notes.append
        )


def test_a_block_waits_for_strangers_to_leave(tmp_path: Path, pauses_s: list[float]) -> None:
    blocks, notes = beside(None), list[str]()
    undisturbed(
        blocks,
        tmp_path / "1-dial",
        Nobody(take_the_resource=Strangers(True, False, False)),
        notes.append,
    )
    assert (blocks.run, len(pauses_s), len(notes)) == (1, 1, 1)


def test_after_a_block_in_slow_cores_quick_ones_are_waited_for(
    tmp_path: Path, pauses_s: list[float]
) -> None:
    blocks, notes = beside(Apart(0.0, 0.0, 0.6), None), list[str]()
    undisturbed(
        blocks, tmp_path / "1-dial", Nobody(slow_cores=Strangers(True, True, False)), notes.append
    )
    assert (blocks.run, len(pauses_s), len(notes)) == (2, 2, 3)


def test_before_the_first_block_cores_are_not_looked_at(tmp_path: Path) -> None:
    undisturbed(beside(None), tmp_path / "1-dial", Nobody(slow_cores=Strangers()), [].append)


def test_blocks_after_which_strangers_are_always_there_are_given_up(tmp_path: Path) -> None:
    blocks = beside(*[None] * 5)
    with pytest.raises(LabUnquiet, match="somebody is there"):
        undisturbed(
            blocks,
            tmp_path / "1-dial",
            Nobody(take_the_resource=Strangers(*[False, True] * 5)),
            [].append,
        )
    assert blocks.run == 5


def test_what_a_stranger_disturbed_is_no_better_than_a_block_whose_neighbour_was_elsewhere(
    tmp_path: Path,
) -> None:
    blocks, notes = beside(Apart(0.0, 0.0), *[Apart(0.4, 0.3)] * 5), list[str]()
    there = Strangers(False, True, *[False] * 10)
    assert undisturbed(
        blocks, tmp_path / "1-dial", Nobody(take_the_resource=there), notes.append
    ).apart == Apart(0.4, 0.3)
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert "try 1 of 5" in notes[0]
    assert "try 1 of 5" in notes[1]


def test_a_block_of_whose_cores_much_was_stolen_is_run_again_when_the_hypervisor_is_waited_for(
    tmp_path: Path, pauses_s: list[float]
) -> None:
    blocks, notes = stolen_of(0.25, MOST_STOLEN), list[str]()
    hypervisor = Nobody()
    found = undisturbed(blocks, tmp_path / "1-dial", hypervisor, notes.append)
    assert (found.stolen, pauses_s) == (MOST_STOLEN, [STOLEN_PAUSE_S])
    assert hypervisor.waited_for == 1
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert (tmp_path / "1-dial-disturbed-1" / "number").read_text() == "0"
    assert len(notes) == 1
    assert "for 25.0% of the time the hypervisor ran somebody else" in notes[0]
    assert notes[0].endswith("it does not count (try 1 of 5)")


def test_where_cores_are_always_stolen_the_least_disturbed_block_counts(
    tmp_path: Path, pauses_s: list[float]
) -> None:
    notes: list[str] = []
    blocks = stolen_of(0.3, 0.1, 0.05, 0.2, 0.4)
    found = undisturbed(blocks, tmp_path / "1-dial", Nobody(), notes.append)
    assert (found.stolen, blocks.run, len(pauses_s)) == (0.05, BLOCK_TRIES, BLOCK_TRIES - 1)
    assert notes[-1].endswith("it counts, there was none better")


def test_a_block_whose_generator_was_late_is_run_again_after_a_pause(
    tmp_path: Path, pauses_s: list[float]
) -> None:
    notes: list[str] = []
    found = undisturbed(late_by(6.3, 5.0), tmp_path / "1-dial", Nobody(), notes.append)
    assert (lateness_ms(found.results), pauses_s) == (5.0, [STOLEN_PAUSE_S])
    assert len(notes) == 1
    assert "the generator was late, by 6.3 ms at P99, 5 are let pass" in notes[0]
    assert notes[0].endswith("it does not count (try 1 of 5)")


def test_the_report_says_for_how_long_the_cores_were_apart() -> None:
    figures = policy_figures([block(Apart(0.03, 0.1)), block(None)], 0.5)
    assert figures["cores_apart"] == [[0.03, 0.1], None]


def test_a_block_of_work_on_slow_cores_is_run_again_after_a_pause(
    tmp_path: Path, pauses_s: list[float]
) -> None:
    notes: list[str] = []
    outside = Nobody(most_slowdown=1.04)
    found = undisturbed(slow_by(1.3, 1.04), tmp_path / "1-dial", outside, notes.append)
    assert (found.slowdown, pauses_s) == (1.04, [STOLEN_PAUSE_S])
    assert len(notes) == 1
    assert "work took 30% longer than machines were given more time for it" in notes[0]
    assert "4% are let pass; it does not count (try 1 of 5)" in notes[0]


def test_of_blocks_that_are_all_slow_or_stolen_the_least_disturbed_one_counts(
    tmp_path: Path, pauses_s: list[float]
) -> None:
    # 5, 4, 3, 2.5 and 10 times what is let pass.
    blocks = Blocks(
        block(slowdown=1.2),
        block(stolen=4 * MOST_STOLEN, slowdown=1.0),
        block(stolen=3 * MOST_STOLEN, slowdown=1.1),
        block(stolen=MOST_STOLEN, slowdown=1.1),
        block(stolen=0.0, slowdown=1.4),
    )
    found = undisturbed(blocks, tmp_path / "1-dial", Nobody(most_slowdown=1.04), [].append)
    assert (found.stolen, found.slowdown) == (MOST_STOLEN, 1.1)


def test_slow_cores_do_not_matter_where_requests_are_cpu_time(tmp_path: Path) -> None:
    blocks = slow_by(1.8)
    undisturbed(blocks, tmp_path / "1-dial", Nobody(), [].append)
    assert blocks.run == 1


def test_the_report_says_how_much_was_stolen_in_each_block() -> None:
    assert policy_figures([block(stolen=0.0), block(stolen=0.01234)], 0.5)["stolen"] == [
        0.0,
        0.0123,
    ]


def test_the_report_says_how_slow_cores_were_in_each_block() -> None:
    figures = policy_figures([block(slowdown=1.0312), block()], 0.5)
    assert figures["slowdown"] == [1.031, None]
