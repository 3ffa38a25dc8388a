"""Cache lines as a resource: which are taken, what that costs a real tenant, and what is left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dial.errors import LabError
from dial_lab import calibration
from dial_lab.app import Lines
from dial_lab.cgroups import Cgroups
from dial_lab.neighbours import lines
from dial_lab.processes import Children
from dial_lab.resources import LINES, RESOURCES
from dial_lab.resources.lines import TAKER, file_of, part_of_lines
from dial_lab.topology import Machine, machines, place


@pytest.mark.parametrize(
    ("rho_bg", "part"),
    # A load that hits is 1, one that does not 2: of a third lost 3 become 4, of all 1 becomes 2.
    [(0.25, 1 / 3), (0.4, 2 / 3), (0.5, 1.0), (0.7, 1.0), (1.0, 1.0)],
)
def test_the_more_is_to_be_lost_the_more_lines_are_taken_up_to_all(
    rho_bg: float, part: float
) -> None:
    assert part_of_lines(rho_bg) == pytest.approx(part, abs=1e-4)


def test_nothing_is_recorded_for_training_beside_who_takes_lines() -> None:
    assert LINES not in RESOURCES.values()
    assert {program.purpose for program in LINES.programs.values()} == {None}


def test_of_a_part_of_the_lines_the_second_words_are_written_to_and_nothing_else() -> None:
    words = memoryview(bytearray(64 * 8)).cast("Q")  # eight lines
    words[1] = 2**64 - 1  # goes round
    passes = lines.take(words, 0.5, time.monotonic() + 0.02)
    assert passes > 0
    second = [passes - 1, passes, passes, passes, 0, 0, 0, 0]
    assert list(words[1 :: Lines.WORDS]) == second
    assert sum(words) == sum(second)


def test_a_neighbour_is_told_the_file_of_its_victim_and_ends_by_itself(tmp_path: Path) -> None:
    victim = Machine("s2", 1, Cgroups(tmp_path, False, ()))
    argv = LINES.programs[TAKER].argv((file_of(victim), part_of_lines(0.4)), 42)
    assert argv[2:] == [
        "dial_lab.neighbours.lines",
        "/dev/shm/dial-lab-s2.lines",
        "--part=0.667",
        "--seconds=42",
    ]


def test_a_computer_of_one_core_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    only = Machine("s1", 0, Cgroups(tmp_path, False, ()))
    with (
        pytest.raises(LabError, match="needs a core beside the machines'; there is one"),
        LINES.tenants([only], Children(tmp_path)),
    ):
        pass


def test_the_neighbour_is_on_a_core_that_is_no_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    started: list[object] = []
    monkeypatch.setattr(Children, "start", lambda *_, cores: started.append(cores))
    placement = place([0, 1, 2, 3], 3)
    for name, core in zip(("s1", "s2", "s3"), placement.machines, strict=True):
        machine = Machine(name, core, Cgroups(tmp_path, False, ()))
        LINES.start_neighbour(Children(tmp_path), machine, 0.5, 1.0)
    assert started == [placement.harness] * 3


@pytest.fixture
def pair(cgroups: Cgroups) -> Iterator[tuple[Machine, ...]]:
    """Two machines on one core; who asks keeps off it, as in a run."""
    cores = os.sched_getaffinity(0)
    placement = place(sorted(cores), 3)
    with machines(cgroups, ["t1", "t2"], [*placement.harness, placement.machines[0]]) as built:
        os.sched_setaffinity(0, placement.harness)
        yield built
        os.sched_setaffinity(0, cores)


@pytest.mark.root
def test_a_victim_loses_about_what_its_neighbour_is_told_and_its_sibling_nothing(
    pair: tuple[Machine, ...], tmp_path: Path, in_a_calm_moment: Callable[..., object]
) -> None:
    victim = pair[0]
    with Children(tmp_path) as children, LINES.tenants(pair, children) as addresses:

        def served_rps(name: str) -> float:
            calibration.saturation_rps(addresses[name], LINES.cost, calibration.SETTLE_S)
            return calibration.saturation_rps(addresses[name], LINES.cost, 1.5)

        def lost() -> dict[str, float]:
            quiet_rps = {each.name: served_rps(each.name) for each in pair}
            neighbour = LINES.start_neighbour(children, victim, 0.5, 20.0)
            found = {name: 1.0 - served_rps(name) / rps for name, rps in quiet_rps.items()}
            children.check()
            children.stop(neighbour)
            return found

        expected = {"t1": pytest.approx(0.5, abs=0.15), "t2": pytest.approx(0.0, abs=0.15)}
        assert in_a_calm_moment(lost, expected) == expected
        assert file_of(victim).exists()
    assert not file_of(victim).exists()
