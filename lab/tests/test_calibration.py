"""Which neighbours of a scenario are measured, and where."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dial.errors import LabError, LabUnquiet
from dial_lab import calibration
from dial_lab.addresses import Address
from dial_lab.calibration import Calibration, calibrate_all
from dial_lab.cgroups import Cgroups
from dial_lab.one_cache import Apart, Watch
from dial_lab.processes import Children
from dial_lab.resources import Cost, Resource
from dial_lab.resources.cpu import CPU
from dial_lab.resources.llc import LLC
from dial_lab.scenarios import scenario
from dial_lab.topology import Machine

LEFT_RPS = {"net": 90.0, "cpu": 60.0, "llc": 75.0}


def measured(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[Calibration, ...], list[tuple[str, str, Cost | None]]]:
    """What comes out of a scenario, and what was measured for it: resource, machine, cost."""
    calls = []

    def calibrate(
        _: Children,
        resource: Resource,
        machine: Machine,
        address: Address,
        *,
        rho_bg: float | None,
        cost: Cost | None = None,
        **__: Any,
    ) -> Calibration:
        assert address == Address(machine.name, 1)
        calls.append((resource.name, machine.name, cost))
        return Calibration(200.0, 200.0 if rho_bg is None else LEFT_RPS[resource.name])

    monkeypatch.setattr(calibration, "calibrate", calibrate)
    groups = Cgroups(Path("/none"), False, ())
    machines = [Machine(name, 0, groups) for name in ("s1", "s2", "s3")]
    addresses = {machine.name: Address(machine.name, 1) for machine in machines}
    children = Children(Path("/none"))
    found = calibrate_all(children, scenario(name), machines, addresses, rho_bg=0.7)
    return found, calls


def test_each_kind_of_neighbour_is_measured_where_it_comes_with_the_scenarios_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, calls = measured("mixed", monkeypatch)
    cost = scenario("mixed").resource.cost
    assert calls == [("net", "s1", cost), ("cpu", "s2", cost)]
    assert [each.contended_rps for each in found] == [90.0, 60.0, 200.0]


def test_neighbours_that_are_alike_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, calls = measured("two-victims", monkeypatch)
    assert [machine for _, machine, _ in calls] == ["s1"]
    assert [each.contended_rps for each in found] == [60.0, 60.0, 200.0]


def test_without_a_neighbour_every_machine_keeps_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, calls = measured("load", monkeypatch)
    assert len(calls) == 1
    assert found == (Calibration(200.0, 200.0),) * 3


def test_siblings_of_a_victim_that_stands_apart_are_measured_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = []

    def saturate(addresses: dict[str, Address], cost: Cost, duration_s: float) -> dict[str, float]:
        together.append((tuple(addresses), cost))
        return {"s2": 85.0, "s3": 83.0}

    monkeypatch.setattr(calibration, "saturation_rps_together", saturate)
    monkeypatch.setattr(calibration.one_cache, "watching", lambda *_: nullcontext())
    found, calls = measured("llc", monkeypatch)
    assert [(name, machine) for name, machine, _ in calls] == [("llc", "s1")]
    assert set(together) == {(("s2", "s3"), LLC.cost)}
    assert found == (Calibration(200.0, 75.0), Calibration(85.0, 85.0), Calibration(83.0, 83.0))


def test_whoever_may_be_in_the_cache_is_looked_for_by_what_a_load_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # 0.9 of a core over 60 requests of 300,000 loads are 50 ns a load.
    monkeypatch.setattr(calibration, "saturation_rps", lambda *_: 60.0)
    machine = Machine("s1", 0, Cgroups(tmp_path, False, ()), capacity_cores=0.9)
    with pytest.raises(LabUnquiet, match="s1 needs 50 ns of CPU time for one of its touches"):
        calibration.require_alone(LLC, machine, Address("s1", 1))
    calibration.require_alone(CPU, machine, Address("s1", 1))


def test_siblings_on_a_core_that_somebody_else_slows_are_not_calibrated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Slow(Watch):
        def apart(self, begin_s: float, end_s: float) -> Apart:
            return Apart(0.0, 0.0, slow=0.5)

    monkeypatch.setattr(calibration, "saturation_rps_together", lambda *_: {"s2": 80.0, "s3": 80.0})
    watched = nullcontext(Slow(tmp_path / "none"))
    monkeypatch.setattr(calibration.one_cache, "watching", lambda *_: watched)
    with pytest.raises(LabUnquiet, match="for 50% of the time a line took 18 ns"):
        measured("llc", monkeypatch)


@pytest.mark.parametrize(("rps", "refused"), [(130.0, False), (60.0, True)])
def test_a_calibration_with_somebody_elses_company_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rps: float, refused: bool
) -> None:
    # 0.9 of a core over 130 (60) requests of 300,000 loads are 23 (50) ns a load.
    monkeypatch.setattr(calibration, "saturation_rps", lambda *_: rps)
    monkeypatch.setattr(calibration.one_cache, "watching", lambda *_: nullcontext())
    machine = Machine("s1", 0, Cgroups(tmp_path, False, ()), capacity_cores=0.9)
    expected = (
        pytest.raises(LabError, match="s1 needs 50 ns of CPU time for one")
        if refused
        else nullcontext()
    )
    with expected:
        alone = calibration.calibrate(
            Children(tmp_path), LLC, machine, Address("s1", 1), rho_bg=None
        )
        assert alone == Calibration(rps, rps)


@pytest.mark.parametrize(("left_rps", "refused"), [(70.0, False), (120.0, True)])
def test_a_calibration_whose_neighbour_takes_next_to_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left_rps: float, refused: bool
) -> None:
    # Of 0.7 at least 0.35: 70 requests a second left of 130 are 0.46 taken, 120 are 0.08.
    rps = iter([130.0, 130.0, left_rps])
    monkeypatch.setattr(calibration, "saturation_rps", lambda *_: next(rps))
    monkeypatch.setattr(type(LLC), "start_neighbour", lambda *_: None)
    monkeypatch.setattr(Children, "stop", lambda *_: None)
    monkeypatch.setattr(calibration.one_cache, "watching", lambda *_: nullcontext())
    machine = Machine("s1", 0, Cgroups(tmp_path, False, ()), capacity_cores=0.9)
    expected = (
        pytest.raises(
            LabError, match=r"the neighbour of s1 takes 0\.08 of it where 0\.70 were asked"
        )
        if refused
        else nullcontext()
    )
    with expected:
        found = calibration.calibrate(
            Children(tmp_path), LLC, machine, Address("s1", 1), rho_bg=0.7
        )
        assert found == Calibration(130.0, left_rps)
