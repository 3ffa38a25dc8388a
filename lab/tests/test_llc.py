"""The last-level cache as a resource: what is asked of the neighbour, and when it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dial.errors import LabError
from dial_lab.app import WorkingSet
from dial_lab.cgroups import Cgroups
from dial_lab.resources.llc import LLC, MOST_CORES, neighbour_cores, quiet_touch_ns


@pytest.mark.parametrize(
    ("rho_bg", "cores"),
    [
        (0.5, 0.1667),  # 0.5 / 0.5 / 6
        (0.75, 0.5),  # 0.75 / 0.25 / 6
        (0.9, MOST_CORES),  # 1.5 cores, which nobody has to give
        (1.0, MOST_CORES),
    ],
)
def test_a_neighbour_gets_the_cpu_time_that_slows_the_victim_as_asked(
    rho_bg: float, cores: float
) -> None:
    assert neighbour_cores(rho_bg) == cores


def test_a_request_costs_whole_chains() -> None:
    assert LLC.cost.target(65) == f"/work?touches={2 * WorkingSet.DEPTH}"


def test_a_quiet_cache_is_measured_once() -> None:
    rates = iter([150.0])
    # 0.3 core / (150 req/s x 100,000 touches) = 20 ns
    assert quiet_touch_ns(lambda: next(rates), 100_000.0, 0.0) == pytest.approx(20.0)


def test_a_cache_that_gets_quiet_is_accepted_at_the_last_try() -> None:
    rates = iter([50.0, 100.0, 150.0])
    assert quiet_touch_ns(lambda: next(rates), 100_000.0, 0.0) == pytest.approx(20.0)


def test_a_cache_in_use_by_others_is_refused_with_what_was_measured() -> None:
    # 0.3 / (50 x 100,000) = 60 ns
    with pytest.raises(LabError, match="a load takes 60 ns with no neighbour started, 25 at most"):
        quiet_touch_ns(lambda: 50.0, 100_000.0, 0.0)


@pytest.mark.parametrize("is_v2", [False, True])
def test_the_neighbours_group_is_idle_in_both_versions(tmp_path: Path, is_v2: bool) -> None:
    (tmp_path / "g").mkdir()
    Cgroups(tmp_path, is_v2, ()).set_idle("g")
    assert (tmp_path / "g/cpu.idle").read_text() == "1"
