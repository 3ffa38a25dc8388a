"""The last-level cache as a resource: what is asked of the neighbour, and when it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path

import pytest

from dial.errors import LabError, LabUnquiet
from dial_lab.app import WorkingSet
from dial_lab.cgroups import Cgroups
from dial_lab.processes import Children
from dial_lab.resources import llc
from dial_lab.resources.base import programs_for
from dial_lab.resources.llc import (
    LLC,
    MOST_CORES,
    STEADY,
    can_be_taken,
    neighbour_cores,
    quiet_touch_ns,
    scales_that_serve,
)
from dial_lab.scenarios import SCENARIOS, in_the_cache
from dial_lab.topology import Machine


@pytest.mark.parametrize(
    ("rho_bg", "cores"),
    # 0.7 would be 0.84 of a core, which nobody can give.
    [(0.2, 0.24), (0.5, 0.6), (0.7, MOST_CORES), (1.0, MOST_CORES)],
)
def test_a_neighbour_has_more_of_its_core_the_more_it_is_to_take_up_to_what_is_left_of_it(
    rho_bg: float, cores: float
) -> None:
    assert neighbour_cores(rho_bg) == cores


def test_what_trains_is_not_what_tests() -> None:
    assert programs_for(LLC, "training") == ("stress-ng-cache",)
    assert programs_for(LLC, "unseen") == ("triad", "sysbench-memory")


def test_runs_are_visited_by_the_program_that_takes_the_cache_all_the_time() -> None:
    assert in_the_cache(swept=True) == (LLC, STEADY)
    assert LLC.programs[STEADY].argv(None, 60)[2:4] == ["dial_lab.neighbours.memory", "search"]
    assert STEADY not in programs_for(LLC, "training") + programs_for(LLC, "unseen")


def test_runs_on_any_computer_have_a_neighbour_in_the_cache() -> None:
    scenario = SCENARIOS["llc"]
    (visit,) = scenario.visits
    here = in_the_cache(swept=can_be_taken())
    assert (scenario.taken_by(visit), scenario.program_of(visit)) == here


@pytest.mark.parametrize(
    ("size", "can"),
    [("32768K\n", True), ("55296K\n", True), ("266240K\n", False), ("unknown\n", False)],
)
def test_one_core_can_take_a_last_level_of_some_tens_of_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, can: bool
) -> None:
    path = tmp_path / "size"
    monkeypatch.setattr(llc, "_LAST_LEVEL", path)
    assert not can_be_taken()  # nobody knows
    path.write_text(size, encoding="ascii")
    assert can_be_taken() == can


def test_only_a_machine_that_stands_apart_can_be_visited(tmp_path: Path) -> None:
    sibling = Machine("s2", 0, Cgroups(tmp_path, False, ()))
    with pytest.raises(LabError, match="s2 has a small working set; only the first can lose"):
        LLC.start_neighbour(Children(tmp_path), sibling, 0.5, 1.0)


def test_a_request_costs_whole_chains() -> None:
    assert LLC.cost.target(65) == f"/work?touches={2 * WorkingSet.DEPTH}"


def touch_ns(*figures: float) -> Callable[[], float]:
    """A measurement that gives these, one after the other."""
    each = iter(figures)
    return lambda: next(each)


def test_what_a_load_takes_in_a_quiet_cache_is_the_median_of_three() -> None:
    assert quiet_touch_ns(touch_ns(50.0, 54.0, 47.0)) == 50.0


def test_a_cache_that_is_quiet_for_a_moment_only_is_refused() -> None:
    with pytest.raises(LabUnquiet, match="90 ns in 2304 KiB with no neighbour started, 68 at most"):
        quiet_touch_ns(touch_ns(50.0, 50.0, 90.0))


def test_the_refusal_says_how_large_the_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = tmp_path / "size"
    monkeypatch.setattr(llc, "_LAST_LEVEL", size)
    with pytest.raises(LabUnquiet, match="this computer's cache, or it is too large"):
        quiet_touch_ns(touch_ns(90.0))
    size.write_text("266240K\n", encoding="ascii")
    with pytest.raises(LabUnquiet, match="this computer's cache of 260 MiB, or it is too large"):
        quiet_touch_ns(touch_ns(90.0))


@pytest.mark.parametrize("is_v2", [False, True])
def test_the_neighbours_group_is_idle_in_both_versions(tmp_path: Path, is_v2: bool) -> None:
    (tmp_path / "g").mkdir()
    Cgroups(tmp_path, is_v2, ()).set_idle("g")
    assert (tmp_path / "g/cpu.idle").read_text() == "1"


def test_siblings_are_asked_so_much_that_they_serve_what_the_victim_does() -> None:
    def served_rps(scales: Mapping[str, float]) -> dict[str, float]:
        # A request of 0.25 of a core: 0.3 ms for itself, and 1 or 1.6 ms for loads at a scale of 5.
        own_ms = {"s2": 1.0, "s3": 1.6}
        return {name: 250.0 / (0.3 + own_ms[name] * scale / 5.0) for name, scale in scales.items()}

    guess = {"s2": 5.0, "s3": 5.0}
    assert served_rps(guess) == pytest.approx({"s2": 192.3, "s3": 131.6}, abs=0.1)
    found = scales_that_serve(140.0, guess, served_rps)
    assert served_rps(found) == pytest.approx({"s2": 140.0, "s3": 140.0}, rel=0.02)


def test_a_sibling_that_was_measured_in_a_slow_moment_is_measured_again() -> None:
    speeds = iter([0.6, 1.0, 1.0, 1.0])

    def served_rps(scales: Mapping[str, float]) -> dict[str, float]:
        speed = next(speeds)
        return {name: speed * 700.0 / scale for name, scale in scales.items()}

    assert scales_that_serve(140.0, {"s2": 5.0}, served_rps) == pytest.approx({"s2": 5.0})
    assert next(speeds, None) is None


def test_siblings_on_a_core_that_is_slow_now_and_then_are_refused() -> None:
    speeds = cycle([1.0, 0.6])

    def served_rps(scales: Mapping[str, float]) -> dict[str, float]:
        speed = next(speeds)
        return {name: speed * 700.0 / scale for name, scale in scales.items()}

    with pytest.raises(
        LabUnquiet,
        match="machines that are to serve 140 requests a second serve s2 84 at the last of 6 looks",
    ):
        scales_that_serve(140.0, {"s2": 5.0}, served_rps)
