"""What a round begins with."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from dial.errors import LabUnquiet
from dial_lab.apache import ApacheOnCpu
from dial_lab.block import Site
from dial_lab.calibration import Calibration
from dial_lab.cgroups import Cgroups
from dial_lab.policies import policy
from dial_lab.processes import Children
from dial_lab.request import Request
from dial_lab.resources.cpu import CPU, CpuResource
from dial_lab.restless import Restless
from dial_lab.run import as_measured, calibrated_alone
from dial_lab.scenarios import scenario
from dial_lab.topology import Machine

REQUEST = Request(
    scenario=scenario("cpu"),
    policies=(policy("leastconn"),),
    load=0.5,
    rate_per_s=None,
    severity=0.5,
    contended_s=15.0,
    rounds=5,
    percentile=90.0,
    seed=7,
)
MACHINES = tuple(Machine(name, 0, Cgroups(Path("/none"), False, ())) for name in ("s1", "s2"))
SITE = Site(REQUEST.scenario, MACHINES, {}, (), 0.5, 0.0, 90.0, 7, REQUEST.phases)
SERVED = (Calibration(150.0, 60.0), Calibration(140.0, 140.0))


def test_the_load_is_a_part_of_what_machines_serve_now() -> None:
    site = as_measured(SITE, REQUEST, SERVED)
    assert site.rate_per_s == 100.0
    assert site.served == {"s1": SERVED[0], "s2": SERVED[1]}


def test_a_rate_that_was_asked_for_stays_whatever_machines_serve() -> None:
    asked = replace(REQUEST, load=None, rate_per_s=200.0)
    assert as_measured(SITE, asked, SERVED).rate_per_s == 200.0


@pytest.mark.parametrize(
    ("resource", "counts"), [(CPU, True), (ApacheOnCpu(), False)], ids=["CPU time", "work"]
)
def test_calibrations_on_slow_cores_do_not_count_where_requests_are_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, resource: CpuResource, counts: bool
) -> None:
    out = tmp_path / "0.txt"
    out.write_text("0.0 50000\n")

    def slowly(*_: object, **__: object) -> tuple[Calibration, ...]:
        out.write_text(f"0.0 50000\n{time.monotonic()} 60000\n")
        return SERVED

    monkeypatch.setattr("dial_lab.run.calibrate_all", slowly)
    site = replace(
        SITE,
        scenario=replace(SITE.scenario, resource=resource),
        awake=Restless({}, {0: out}),
    )
    said = nullcontext() if counts else pytest.raises(LabUnquiet, match="work took 20% longer")
    with said, Children(tmp_path) as children:
        assert calibrated_alone(site, children, print) == SERVED
