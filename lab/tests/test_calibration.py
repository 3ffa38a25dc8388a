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

VICTIM = Machine("s1", 0, Cgroups(Path("/none"), False, ()), capacity_cores=0.9)
ADDRESSES = {name: Address(name, 1) for name in ("s1", "s2")}


def serves(monkeypatch: pytest.MonkeyPatch, watch: Watch | None, *rps: float) -> None:
    """What the first machine serves, time after time, the second one more; no program starts."""
    served = iter(rps)

    def saturate(addresses: dict[str, Address], *_: Any) -> dict[str, float]:
        now = next(served)
        return {name: now + number for number, name in enumerate(addresses)}

    monkeypatch.setattr(calibration, "saturation_rps_together", saturate)
    monkeypatch.setattr(type(LLC), "start_neighbour", lambda *_: None)
    monkeypatch.setattr(Children, "stop", lambda *_: None)
    monkeypatch.setattr(calibration.one_cache, "watching", lambda *_: nullcontext(watch))


def measured(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[Calibration, ...], list[tuple[str, str, Cost | None]]]:
    """What comes out of a scenario, and what was measured for it: resource, at work, cost."""
    calls = []

    def calibrate(
        _: Children,
        resource: Resource,
        machine: Machine,
        addresses: dict[str, Address],
        *,
        rho_bg: float | None,
        cost: Cost | None = None,
        **__: Any,
    ) -> dict[str, Calibration]:
        assert all(address == Address(name, 1) for name, address in addresses.items())
        calls.append((resource.name, " ".join(addresses), cost))
        left = Calibration(200.0, 200.0 if rho_bg is None else LEFT_RPS[resource.name])
        return {**dict.fromkeys(addresses, Calibration(180.0, 175.0)), machine.name: left}

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


def test_siblings_of_a_victim_in_the_cache_are_at_work_while_it_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, calls = measured("llc", monkeypatch)
    assert calls == [("llc", "s1 s2 s3", scenario("llc").resource.cost)]
    assert found == (Calibration(200.0, 75.0), *(Calibration(180.0, 175.0),) * 2)


def test_whoever_may_be_in_the_cache_is_looked_for_by_what_a_load_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 0.9 of a core over 90 requests of 100,000 loads are 100 ns a load.
    monkeypatch.setattr(calibration, "saturation_rps", lambda *_: 90.0)
    with pytest.raises(LabUnquiet, match="s1 needs 100 ns of CPU time for one of its touches"):
        calibration.require_alone(LLC, VICTIM, ADDRESSES["s1"])
    calibration.require_alone(CPU, VICTIM, ADDRESSES["s1"])


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((Apart(0.0, 0.0, slow=0.5),), "for 50% of the time a line took 18 ns"),
        ((Apart(0.0, 0.0), Apart(0.0, 0.0, slow=0.5)), "for 50% of the time a line took 18 ns"),
        ((Apart(0.0, 0.0), Apart(0.4, 0.4)), "for 40% of the neighbour's time"),
    ],
)
def test_machines_on_cores_that_were_slow_or_at_two_caches_are_not_calibrated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: tuple[Apart, ...], said: str
) -> None:
    class Found(Watch):
        each = iter(found)

        def apart(self, begin_s: float, end_s: float) -> Apart:
            return next(self.each)

    serves(monkeypatch, Found(tmp_path / "none"), 180.0, 180.0, 100.0, 100.0)
    with pytest.raises(LabUnquiet, match=said):
        calibration.calibrate(Children(tmp_path), LLC, VICTIM, ADDRESSES, rho_bg=0.5)


@pytest.mark.parametrize(("rps", "refused"), [(180.0, False), (90.0, True)])
def test_a_calibration_with_somebody_elses_company_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rps: float, refused: bool
) -> None:
    # 0.9 of a core over 180 (90) requests of 100,000 loads are 50 (100) ns a load.
    serves(monkeypatch, None, rps, rps)
    expected = (
        pytest.raises(LabError, match="s1 needs 100 ns of CPU time for one")
        if refused
        else nullcontext()
    )
    with expected:
        found = calibration.calibrate(Children(tmp_path), LLC, VICTIM, ADDRESSES, rho_bg=None)
        assert found == {"s1": Calibration(rps, rps), "s2": Calibration(rps + 1, rps + 1)}


@pytest.mark.parametrize(("left_rps", "refused"), [(100.0, False), (115.0, True)])
def test_a_calibration_whose_neighbour_takes_much_less_than_asked_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left_rps: float, refused: bool
) -> None:
    # Of the half that it can take at least 0.4: 100 requests a second left of 180 are 0.44 taken,
    # 115 are 0.36.
    serves(monkeypatch, None, 180.0, 180.0, left_rps, left_rps)
    expected = (
        pytest.raises(
            LabError, match=r"the neighbour of s1 takes 0\.36 of it where 0\.70 were asked"
        )
        if refused
        else nullcontext()
    )
    with expected:
        found = calibration.calibrate(Children(tmp_path), LLC, VICTIM, ADDRESSES, rho_bg=0.7)
        assert found == {"s1": Calibration(180.0, left_rps), "s2": Calibration(181.0, left_rps + 1)}
