"""Machines that are given more of a slow core."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dial.errors import LabError
from dial_lab.cgroups import Cgroups
from dial_lab.restless import Restless
from dial_lab.steady import MOST_TIMES, Steady, kept
from dial_lab.topology import WORK_CORES, WORK_PERIOD_US, Machine

WITHIN_S = 10.0
USUAL_NS = 10_000.0


class Cores:
    """What is known of core 0, by lines that a test writes; core 1 is the quickest there is."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "restless-0.txt"
        self._file.write_bytes(b"")
        other = directory / "restless-1.txt"
        other.write_text(f"0.0 {USUAL_NS}\n", encoding="ascii")
        self.awake = Restless({}, {0: self._file, 1: other})

    def took(self, times: float, at_s: float, *, lines: int = 4) -> None:
        """Work took so many times its quickest in the second that begins at ``at_s``."""
        with self._file.open("a", encoding="ascii") as file:
            for number in range(lines):
                file.write(f"{at_s + number / lines} {times * USUAL_NS}\n")


@pytest.fixture
def cores(tmp_path: Path) -> Cores:
    return Cores(tmp_path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for group in ("dial-lab.s1/fg", "dial-lab.s1/bg"):
        (tmp_path / group).mkdir(parents=True)
    return Machine("s1", 0, Cgroups(tmp_path, True, ()), WORK_CORES, WORK_PERIOD_US)


def cores_of(machine: Machine, group: str) -> float:
    """What the group may use, by its quota."""
    quota, period = (machine.cgroups.cpu / group / "cpu.max").read_text().split()
    return int(quota) / int(period)


def test_a_machine_on_a_core_where_work_takes_longer_has_as_much_more_of_it(
    cores: Cores, machine: Machine
) -> None:
    machine.cap_neighbour(0.5)
    cores.took(1.3, at_s=0.0)
    Steady([machine], cores.awake, USUAL_NS).give(1.0)
    assert cores_of(machine, machine.group) == pytest.approx(1.3 * WORK_CORES, rel=1e-3)
    assert cores_of(machine, machine.bg) == pytest.approx(0.65 * WORK_CORES, rel=1e-3)


def test_a_neighbour_that_comes_later_has_its_part_of_what_is_given(
    cores: Cores, machine: Machine
) -> None:
    cores.took(1.3, at_s=0.0)
    Steady([machine], cores.awake, USUAL_NS).give(1.0)
    machine.cap_neighbour(0.5)
    assert cores_of(machine, machine.bg) == pytest.approx(0.65 * WORK_CORES, rel=1e-3)


def test_it_is_given_what_the_last_second_needed(cores: Cores, machine: Machine) -> None:
    steady = Steady([machine], cores.awake, USUAL_NS)
    cores.took(1.3, at_s=0.0)
    steady.give(1.0)
    cores.took(1.2, at_s=1.0)
    steady.give(2.0)
    assert machine.given.times == pytest.approx(1.2)
    assert machine.usual_cores == pytest.approx(1.25 * WORK_CORES)


def test_what_it_usually_has_is_of_the_last_minute(cores: Cores, machine: Machine) -> None:
    steady = Steady([machine], cores.awake, USUAL_NS)
    cores.took(1.3, at_s=0.0)
    steady.give(1.0)
    cores.took(1.2, at_s=61.0)
    steady.give(62.0)
    assert machine.given.usual_times == pytest.approx(1.2)


def test_no_core_is_given_more_than_once(cores: Cores, machine: Machine) -> None:
    cores.took(1.62, at_s=0.0)
    Steady([machine], cores.awake, USUAL_NS).give(1.0)
    assert machine.given.times == MOST_TIMES
    assert 3 * MOST_TIMES * WORK_CORES < 1.0


def test_of_a_core_that_nothing_is_known_of_a_machine_has_what_it_was_built_with(
    cores: Cores, machine: Machine
) -> None:
    steady = Steady([machine], cores.awake, USUAL_NS)
    steady.give(1.0)
    assert machine.given.times == 1.0
    assert steady.slowdown(0.0, 1.0) is None


@pytest.mark.parametrize(("before", "left"), [(1.3, 1.0), (1.0, 1.3)])
def test_of_a_slowness_that_was_given_for_nothing_is_left_and_of_one_that_came_after_all(
    before: float, left: float, cores: Cores, machine: Machine
) -> None:
    steady = Steady([machine], cores.awake, USUAL_NS)
    cores.took(before, at_s=0.0)
    steady.give(1.0)
    cores.took(1.3, at_s=1.0)
    assert steady.slowdown(1.0, 2.0) == pytest.approx(left)


def test_what_is_too_slow_to_be_given_for_is_left(cores: Cores, machine: Machine) -> None:
    steady = Steady([machine], cores.awake, USUAL_NS)
    cores.took(1.62, at_s=0.0)
    steady.give(0.5)
    assert steady.slowdown(0.0, 1.0) == pytest.approx(1.62 / MOST_TIMES)


def test_machines_on_other_cores_have_their_own(cores: Cores, machine: Machine) -> None:
    quick = Machine("s2", 1, machine.cgroups, WORK_CORES, WORK_PERIOD_US)
    (machine.cgroups.cpu / quick.group).mkdir()
    cores.took(1.3, at_s=0.0)
    Steady([machine, quick], cores.awake, USUAL_NS).give(1.0)
    assert (machine.given.times, quick.given.times) == pytest.approx((1.3, 1.0))


@pytest.fixture
def slowed_after_a_look(monkeypatch: pytest.MonkeyPatch, cores: Cores) -> Cores:
    monkeypatch.setattr("dial_lab.steady.LOOK_S", 0.1)
    now_s = time.monotonic()
    cores.took(1.0, at_s=now_s + 0.05, lines=1)
    cores.took(1.3, at_s=now_s + 0.3)
    return cores


def test_it_gives_by_itself_what_work_takes_longer_than_in_a_first_look(
    slowed_after_a_look: Cores, machine: Machine
) -> None:
    with kept([machine], slowed_after_a_look.awake):
        began_s = time.monotonic()
        while machine.given.times < 1.299:
            assert time.monotonic() < began_s + WITHIN_S
            time.sleep(0.05)
    assert machine.given.times == pytest.approx(1.3)


def test_who_can_give_no_more_says_so_to_whoever_asks_what_is_left(
    slowed_after_a_look: Cores, machine: Machine
) -> None:
    (machine.cgroups.cpu / machine.group / "cpu.max").mkdir()
    with kept([machine], slowed_after_a_look.awake) as steady:
        began_s = time.monotonic()
        while steady.failed is None:
            assert time.monotonic() < began_s + WITHIN_S
            time.sleep(0.05)
    with pytest.raises(LabError, match=r"cpu\.max: cannot write"):
        steady.slowdown(0.0, 1.0)


def test_where_cores_have_no_time_at_all_nobody_knows_what_to_give(
    monkeypatch: pytest.MonkeyPatch, cores: Cores, machine: Machine
) -> None:
    monkeypatch.setattr("dial_lab.steady.LOOK_S", 0.1)
    with (
        pytest.raises(LabError, match="had no time for anything else"),
        kept([machine], cores.awake),
    ):
        pass
