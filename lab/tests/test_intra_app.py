"""The application that blocks itself, on real machines: it serves less, and says why."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dial.agent.files import Tree
from dial.pbox.application import ApplicationPages
from dial_lab.app import BadRequest
from dial_lab.calibration import saturation_rps
from dial_lab.cgroups import Cgroups
from dial_lab.locked_app import hold_s
from dial_lab.neighbours.reports import HOLD_MS, pause_s
from dial_lab.processes import Children
from dial_lab.resources import INTRA_APP
from dial_lab.scenarios import scenario
from dial_lab.tenant import page_of
from dial_lab.topology import machines
from dial_pbox.library import LIBRARY_VARIABLE


@pytest.fixture(scope="module")
def _libpbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The library of these very sources, where the application will look for it."""
    pbox = Path(__file__).resolve().parents[2] / "pbox"
    built = tmp_path_factory.mktemp("libpbox") / "libpbox.so.1"
    sources = sorted(str(path) for path in (pbox / "src").glob("*.c"))
    argv = ["cc", "-std=c11", "-O2", "-fPIC", "-shared", "-D_GNU_SOURCE", "-pthread"]
    argv += [f"-I{pbox / 'include'}", f"-I{pbox / 'src'}", *sources, "-o", str(built), "-lm"]
    subprocess.run(argv, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LIBRARY_VARIABLE, str(built))
        yield


def test_the_lock_is_held_for_the_wanted_part_of_the_time() -> None:
    for held in (0.1, 0.5, 0.9):
        hold = HOLD_MS / 1000.0
        assert hold / (hold + pause_s(held)) == pytest.approx(held)


@pytest.mark.parametrize(
    "query", ["", "hold_ms=", "hold_ms=0", "hold_ms=10001", "hold_ms=1&hold_ms=2"]
)
def test_a_report_that_says_not_how_long_is_refused(query: str) -> None:
    with pytest.raises(BadRequest, match="hold_ms"):
        hold_s(query)


def test_nobody_takes_anything_in_the_scenario() -> None:
    assert scenario("intra-app").own_doing
    assert not scenario("self-limited").own_doing


@pytest.mark.root
@pytest.mark.usefixtures("_libpbox")
def test_a_job_of_its_own_costs_the_machine_capacity_and_the_agents_reader_sees_why(
    cgroups: Cgroups, tmp_path: Path
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    with (
        machines(cgroups, ["s1"], cores) as built,
        Children(tmp_path) as children,
        INTRA_APP.tenants(built, children) as addresses,
    ):
        (machine,), address = built, addresses["s1"]
        agent = ApplicationPages(str(page_of(machine)), {os.getuid()}, Tree(), time.monotonic_ns)

        def seen_while_saturated(seconds: float) -> tuple[float, dict[str, object]]:
            before, begin_s = agent.read(), time.monotonic()
            rps = saturation_rps(address, INTRA_APP.cost, seconds)
            took_s = time.monotonic() - begin_s
            return rps, dict(agent.rates(before, agent.read(), took_s))

        quiet_rps, _ = seen_while_saturated(2.0)
        job = INTRA_APP.start_neighbour(children, machine, 0.6, 10.0)
        saturation_rps(address, INTRA_APP.cost, 0.5)
        rps, told = seen_while_saturated(2.0)
        children.check()
        children.stop(job)
    assert 0.2 < 1.0 - rps / quiet_rps < 0.8
    assert told["deferral_fraction"] > 0.5
    assert told["top_resource"] == "table orders"
    assert not page_of(machine).exists()
