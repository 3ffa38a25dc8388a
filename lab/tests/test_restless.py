"""Programs that let cores not rest, and what they know of how quick these are."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dial_lab import restless
from dial_lab.cgroups import Cgroups
from dial_lab.processes import Children
from dial_lab.restless import Restless
from dial_lab.topology import IDLE, machines

WITHIN_S = 30.0


def written(directory: Path, *lines: str) -> dict[int, Path]:
    """What the programs of so many cores wrote."""
    found = {}
    for core, text in enumerate(lines):
        found[core] = directory / f"{core}.txt"
        found[core].write_text(text, encoding="ascii")
    return found


def test_a_core_is_slow_by_its_mean_over_the_quickest_moment_of_any(tmp_path: Path) -> None:
    one = "1.00 50000\n2.00 60000\n3.00 80000\n4.00 90000\n"
    awake = Restless({}, written(tmp_path, one, "1.0 40000\n"))
    assert awake.slowdown([0], 2.0, 4.0) == pytest.approx(70 / 40)


def test_of_several_cores_the_slowest_counts(tmp_path: Path) -> None:
    awake = Restless({}, written(tmp_path, "1.0 50000\n", "1.0 75000\n"))
    assert awake.slowdown([0, 1], 0.0, 2.0) == pytest.approx(1.5)
    assert awake.slowdown([0], 0.0, 2.0) == pytest.approx(1.0)


def test_a_line_that_is_half_written_is_not_read(tmp_path: Path) -> None:
    awake = Restless({}, written(tmp_path, "1.0 50000\n2.0 5"))
    assert awake.slowdown([0], 0.0, 3.0) == pytest.approx(1.0)


def test_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    files = written(tmp_path, "1.0 50000\n2.0 7")
    awake = Restless({}, files)
    assert awake.slowdown([0], 2.0, 3.0) is None
    with files[0].open("a", encoding="ascii") as file:
        file.write("5000\n3.0 60000\n")
    assert awake.slowdown([0], 2.0, 3.0) == pytest.approx(1.5)
    assert awake.slowdown([0], 1.0, 4.0) == pytest.approx((1.0 + 1.5 + 1.2) / 3)


def test_an_interrupted_count_is_not_ten_times_as_slow(tmp_path: Path) -> None:
    awake = Restless({}, written(tmp_path, "1.0 50000\n2.0 500000\n"))
    assert awake.slowdown([0], 2.0, 3.0) == pytest.approx(2.5)


def test_what_work_took_is_told_by_quarters_of_a_second(tmp_path: Path) -> None:
    awake = Restless({}, written(tmp_path, "1.0 40000\n1.25 50000\n1.75 60000\n2.0 70000\n", ""))
    assert awake.took_ns(0, 1.25, 2.0) == [50000.0, 60000.0]
    assert awake.took_ns(1, 1.25, 2.0) == []


def test_of_a_core_that_always_had_something_else_to_do_nobody_knows(tmp_path: Path) -> None:
    awake = Restless({}, written(tmp_path, "1.0 50000\n", "9.0 50000\n"))
    assert awake.slowdown([0, 1], 0.0, 2.0) is None


@pytest.mark.root
@pytest.mark.parametrize("of_work", [False, True])
def test_each_core_has_one_that_only_runs_while_nobody_else_does_there(
    cgroups: Cgroups, tmp_path: Path, *, of_work: bool
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    with machines(cgroups, ["t1"], cores), Children(tmp_path) as children:
        began_s = time.monotonic()
        awake = restless.start(children, cores, cgroups, of_work=of_work)
        while awake.slowdown(cores, began_s, time.monotonic()) is None:
            children.check()
            assert time.monotonic() < began_s + WITHIN_S
            time.sleep(0.05)
        for core, program in awake.programs.items():
            assert os.sched_getscheduler(program.pid) == os.SCHED_IDLE
            assert os.sched_getaffinity(program.pid) == {core}
            # Or it would be idle beside its own session's programs only.
            assert str(program.pid) in (cgroups.cpu / IDLE / "cgroup.procs").read_text().split()
        assert (cgroups.cpu / IDLE / "cpu.idle").read_text().strip() == "1"
        slowdown = awake.slowdown(cores, began_s, time.monotonic())
        assert slowdown is not None
        assert slowdown >= 1.0
    assert sorted(awake.programs) == cores
    assert all(each.poll() is not None for each in awake.programs.values())
