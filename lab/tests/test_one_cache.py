"""Whether two cores have a cache in common, and what becomes of blocks in which they had none."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from dial.errors import LabError, LabUnquiet
from dial_lab import one_cache
from dial_lab.cgroups import Cgroups
from dial_lab.loadgen import Results
from dial_lab.one_cache import SLOW_NS, Apart, Watch, apart
from dial_lab.processes import Children
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult, policy_figures
from dial_lab.resources import CPU, LLC
from dial_lab.topology import Machine
from dial_lab.two_cores import APART_NS
from dial_lab.undisturbed import undisturbed

NEAR, FAR = 15.0, 120.0


def each_half_second(*ways_ns: float) -> list[tuple[float, float]]:
    return [(0.5 * number, ns) for number, ns in enumerate(ways_ns)]


def test_the_time_apart_lasts_from_a_far_line_to_the_next_near_one() -> None:
    ways = each_half_second(NEAR, NEAR, FAR, FAR, *[NEAR] * 11, FAR, *[NEAR] * 4)
    # 1.0 to 2.0 and 7.5 to 8.0 of 10 s, the former of the first 5 s.
    assert apart(ways, 0.0, 10.0) == Apart(0.15, 0.2)


def test_the_last_of_the_time_apart_lasts_to_the_end() -> None:
    assert apart(each_half_second(NEAR, NEAR, NEAR, FAR), 0.0, 2.0) == Apart(0.25, 0.25)


def test_the_cores_are_slow_while_a_line_takes_long_and_they_are_not_apart() -> None:
    ways = each_half_second(NEAR, SLOW_NS, SLOW_NS - 0.1, FAR, APART_NS - 0.1, NEAR, NEAR, NEAR)
    assert apart(ways, 0.0, 4.0) == Apart(0.125, 0.125, 0.25)


@pytest.mark.parametrize(("slow", "disturbed"), [(0.3, False), (0.31, True)])
def test_the_cores_may_be_slow_for_three_tenths_of_a_time(slow: float, disturbed: bool) -> None:
    assert Apart(0.0, 0.0, slow).disturbed is disturbed


def test_what_was_before_and_after_does_not_count() -> None:
    assert apart(each_half_second(FAR, FAR, NEAR, NEAR, FAR), 1.0, 2.0) == Apart(0.0, 0.0)


def test_a_line_is_far_from_the_threshold_on() -> None:
    assert apart([(0.0, APART_NS)], 0.0, 1.0).part == 1.0
    assert apart([(0.0, APART_NS - 0.1)], 0.0, 1.0).part == 0.0


@pytest.mark.parametrize(
    "moments_s",
    [(), (0.0,), (0.0, 0.5, 1.0), (3.0, 3.5, 4.0, 4.5), (0.0, 0.5, 3.0, 3.5, 4.0)],
    ids=["never", "once", "until-it-ended", "too-late", "with-a-gap"],
)
def test_time_in_which_nothing_was_measured_is_refused(moments_s: tuple[float, ...]) -> None:
    with pytest.raises(LabError, match="was not measured all the time"):
        apart([(at_s, NEAR) for at_s in moments_s], 0.0, 5.0)


@pytest.mark.parametrize(
    ("found", "much"),
    [(Apart(0.1, 0.1), False), (Apart(0.11, 0.0), True), (Apart(0.05, 0.2), True)],
)
def test_a_neighbour_may_be_away_for_a_tenth_of_its_time_and_of_its_first_seconds(
    found: Apart, much: bool
) -> None:
    assert found.much is much


def test_a_watch_reads_what_its_program_wrote_but_for_a_line_that_is_half_there(
    tmp_path: Path,
) -> None:
    out = tmp_path / "cores.txt"
    out.write_text("10.000 12.5\n10.250 118.0\n10.500 11.0\n10.7", encoding="ascii")
    watch = Watch(out)
    assert watch.apart(10.0, 12.5) == Apart(pytest.approx(0.1), pytest.approx(0.1))
    watch.require_together(10.0, 12.5)
    with pytest.raises(LabUnquiet, match="for 25% of the neighbour's time and 25% of its first"):
        watch.require_together(10.0, 11.0)
    out.write_text("10.000 22.5\n10.500 18.0\n11.000 11.0\n", encoding="ascii")
    with pytest.raises(LabUnquiet, match="for 67% of the time a line took 18 ns"):
        watch.require_together(10.0, 11.5)


def test_where_the_neighbour_is_on_its_victims_core_nothing_is_watched(tmp_path: Path) -> None:
    machine = Machine("s1", 0, Cgroups(tmp_path, False, ()))
    with Children(tmp_path) as children, one_cache.watching(children, CPU, machine) as watch:
        assert watch is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ways_ns", "quick"), [((NEAR, SLOW_NS, SLOW_NS), False), ((FAR,) * 3, True)]
)
def test_the_cores_are_quick_while_nobody_slows_them_apart_or_not(
    ways_ns: tuple[float, ...], quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = iter((10.0, 10.0 + one_cache.LOOK_S))
    out = tmp_path / "cores.txt"
    out.write_text("".join(f"{10 + number} {ns}\n" for number, ns in enumerate(ways_ns)))
    monkeypatch.setattr(one_cache, "watching", lambda *_: nullcontext(Watch(out)))
    monkeypatch.setattr("dial_lab.one_cache.time.sleep", lambda _: None)
    monkeypatch.setattr("dial_lab.one_cache.time.monotonic", lambda: next(clock_s))
    machine = Machine("s1", 0, Cgroups(tmp_path, False, ()))
    with nullcontext() if quick else pytest.raises(LabUnquiet, match="llc: for 67% of the time"):
        one_cache.require_quick(LLC, machine)


def test_where_the_neighbour_is_on_its_victims_core_quick_ones_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("dial_lab.one_cache.time.sleep")
    one_cache.require_quick(CPU, Machine("s1", 0, Cgroups(tmp_path, False, ())))


def block(apart: Apart | None) -> BlockResult:
    count = np.zeros(0, dtype=np.int16)
    nothing = Results(np.zeros(0), np.zeros(0), np.zeros(0), count, count, ("s1",))
    return BlockResult("dial", Phases(1.0, 1.0, 1.0), nothing, None, apart)


class Blocks:
    """Blocks of which these were found; each leaves a file that says which it is."""

    def __init__(self, *found: Apart | None) -> None:
        self._found = iter(found)
        self.run = 0

    def __call__(self, directory: Path) -> BlockResult:
        directory.mkdir()
        (directory / "number").write_text(str(self.run))
        self.run += 1
        return block(next(self._found))


def nobody() -> None:
    """No strangers, whenever they are looked for."""


def test_a_block_beside_a_neighbour_that_is_there_is_run_once(tmp_path: Path) -> None:
    blocks = Blocks(Apart(0.02, 0.1))
    notes: list[str] = []
    assert undisturbed(blocks, tmp_path / "1-dial", nobody, nobody, notes.append).apart == Apart(
        0.02, 0.1
    )
    assert (blocks.run, notes) == (1, [])


def test_a_block_of_which_nobody_watched_the_cache_is_run_once(tmp_path: Path) -> None:
    blocks = Blocks(None)
    assert undisturbed(blocks, tmp_path / "1-dial", nobody, nobody, [].append).apart is None
    assert blocks.run == 1


def test_a_block_whose_neighbour_was_elsewhere_is_run_again_and_kept_beside_it(
    tmp_path: Path,
) -> None:
    blocks = Blocks(Apart(0.4, 0.3), Apart(0.0, 0.0))
    notes: list[str] = []
    assert undisturbed(blocks, tmp_path / "1-dial", nobody, nobody, notes.append).apart == Apart(
        0.0, 0.0
    )
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert (tmp_path / "1-dial-disturbed-1" / "number").read_text() == "0"
    assert len(notes) == 1
    assert "for 40% of the neighbour's time and 30% of its first 5 s" in notes[0]


def test_where_the_cores_stay_apart_the_least_disturbed_block_counts(tmp_path: Path) -> None:
    found = (Apart(0.5, 0.0), Apart(0.4, 0.0), Apart(0.2, 0.1), Apart(0.05, 0.9), Apart(0.6, 0.0))
    blocks = Blocks(*found, None)
    notes: list[str] = []
    assert undisturbed(blocks, tmp_path / "1-dial", nobody, nobody, notes.append).apart == Apart(
        0.2, 0.1
    )
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
    undisturbed(Blocks(Apart(0.4, 0.3), None), tmp_path / "1-dial", nobody, nobody, [].append)
    assert (tmp_path / "1-dial-disturbed-1" / "number").read_text() == "0"


class Strangers:
    """There at these of the times at which they are looked for."""

    def __init__(self, *there: bool) -> None:
        self._there = iter(there)

    def __call__(self) -> None:
        if next(self._there):
            raise LabUnquiet("cache: somebody is there")


def test_a_block_after_which_strangers_are_there_is_run_again_without_what_it_left(
    tmp_path: Path,
) -> None:
    blocks, notes = Blocks(None, None), list[str]()
    undisturbed(
        blocks, tmp_path / "1-dial", nobody, Strangers(False, True, False, False), notes.append
    )
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert notes == ["dial: cache: somebody is there; it does not count (try 1 of 5)"]


def test_a_block_in_which_the_cores_were_slow_is_run_again_without_what_it_left(
    tmp_path: Path,
) -> None:
    blocks, notes = Blocks(Apart(0.0, 0.0, 0.6), Apart(0.0, 0.0, 0.2)), list[str]()
    found = undisturbed(blocks, tmp_path / "1-dial", nobody, nobody, notes.append)
    assert found.apart == Apart(0.0, 0.0, 0.2)
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert len(notes) == 1
    assert "for 60% of the time a line took 18 ns and more" in notes[0]
    with pytest.raises(LabUnquiet, match="somebody outside the lab slows them"):
        undisturbed(
            Blocks(*[Apart(0.0, 0.0, 0.6)] * 5), tmp_path / "2-dial", nobody, nobody, notes.append
        )


def test_a_block_waits_for_strangers_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("dial_lab.patience.time.sleep", pauses.append)
    blocks, notes = Blocks(None), list[str]()
    undisturbed(blocks, tmp_path / "1-dial", nobody, Strangers(True, False, False), notes.append)
    assert (blocks.run, len(pauses), len(notes)) == (1, 1, 1)


def test_after_a_block_in_slow_cores_quick_ones_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("dial_lab.patience.time.sleep", pauses.append)
    blocks, notes = Blocks(Apart(0.0, 0.0, 0.6), None), list[str]()
    undisturbed(blocks, tmp_path / "1-dial", Strangers(True, True, False), nobody, notes.append)
    assert (blocks.run, len(pauses), len(notes)) == (2, 2, 3)


def test_before_the_first_block_cores_are_not_looked_at(tmp_path: Path) -> None:
    undisturbed(Blocks(None), tmp_path / "1-dial", Strangers(), nobody, [].append)


def test_blocks_after_which_strangers_are_always_there_are_given_up(tmp_path: Path) -> None:
    blocks = Blocks(*[None] * 5)
    with pytest.raises(LabUnquiet, match="somebody is there"):
        undisturbed(blocks, tmp_path / "1-dial", nobody, Strangers(*[False, True] * 5), [].append)
    assert blocks.run == 5


def test_what_a_stranger_disturbed_is_no_better_than_a_block_whose_neighbour_was_elsewhere(
    tmp_path: Path,
) -> None:
    blocks, notes = Blocks(Apart(0.0, 0.0), *[Apart(0.4, 0.3)] * 5), list[str]()
    there = Strangers(False, True, *[False] * 10)
    assert undisturbed(blocks, tmp_path / "1-dial", nobody, there, notes.append).apart == Apart(
        0.4, 0.3
    )
    assert (tmp_path / "1-dial" / "number").read_text() == "1"
    assert "try 1 of 5" in notes[0]
    assert "try 1 of 5" in notes[1]


def test_the_report_says_for_how_long_the_cores_were_apart() -> None:
    figures = policy_figures([block(Apart(0.03, 0.1)), block(None)], 0.5)
    assert figures["cores_apart"] == [[0.03, 0.1], None]
