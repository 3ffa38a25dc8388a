"""What a round begins with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dial_lab.block import Site
from dial_lab.calibration import Calibration
from dial_lab.cgroups import Cgroups
from dial_lab.policies import policy
from dial_lab.request import Request
from dial_lab.run import as_measured
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
