"""Whether two cores have a cache in common, and what becomes of blocks in which they had none."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from dial.errors import LabError, LabUnquiet
from dial_lab import one_cache
from dial_lab.cgroups import Cgroups
from dial_lab.one_cache import SLOW_NS, Apart, Watch, apart
from dial_lab.processes import Children
from dial_lab.resources import CPU, LLC
from dial_lab.topology import Machine
from dial_lab.two_cores import APART_NS

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
