"""Sessions: plans that can be, and one real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dial.controller.recording import Recording
from dial.errors import LabError
from dial_lab.haproxy import WEIGHT
from dial_lab.resources import RESOURCES
from dial_lab.session import Neighbour, SessionPlan, Stage, run_session
from dial_lab.topology import exclusive, host_cgroups

HOG = Neighbour("cpu", "stress-ng-cpu", 0.5)


def test_a_session_takes_as_long_as_its_parts() -> None:
    stages = (Stage(10.0, 5.0, calibrate=True), Stage(20.0, 5.0))
    plan = SessionPlan("cpu", 0.4, stages, seed=1, learn_s=24.0)
    # Warm-up 3, learning 24, stages 10 and 20, the rest between them 5; none after the last.
    assert plan.load_s == 62.0
    assert plan.expected_s == 12.0 + 0.7 + 3.0 + 62.0


@pytest.mark.parametrize(
    ("resource", "load", "stages", "said"),
    [
        ("gpu", 0.4, (Stage(5.0),), r"resource gpu: .* allowed: cpu, net, disk"),
        ("cpu", 1.0, (Stage(5.0),), r"load 1: allowed is above 0 and below 1"),
        ("cpu", 0.4, (), r"a session needs a stage"),
        ("cpu", 0.4, (Stage(5.0, 0.0, {"s4": HOG}),), r"stage 0: machine s4: .* s1, s2, s3"),
        (
            "cpu",
            0.4,
            (Stage(5.0), Stage(5.0, 0.0, {"s1": Neighbour("cpu", "quake", 0.5)})),
            r"stage 1, s1: cpu program quake: .* stress-ng-cpu",
        ),
        (
            "cpu",
            0.4,
            (Stage(5.0, 0.0, {"s1": Neighbour("cpu", "stress-ng-cpu", 1.0)}),),
            r"stage 0, s1: rho_bg 1: allowed is above 0 and below 1",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    resource: str, load: float, stages: tuple[Stage, ...], said: str
) -> None:
    with pytest.raises(LabError, match=said):
        SessionPlan(resource, load, stages, seed=1)


@pytest.mark.parametrize(
    ("guest", "resource", "neighbour", "says"),
    [
        ("kvm", "cpu", "cpu", "guest kvm: .* allowed: shared, uml"),
        ("uml", "net", "cpu", "guest uml: not with net; allowed: cpu"),
        ("uml", "cpu", "llc", "guest uml: not with llc; allowed: cpu"),
    ],
)
def test_a_plan_says_which_guests_there_are_and_for_what(guest, resource, neighbour, says):
    program = next(iter(RESOURCES[neighbour].programs))
    stage = Stage(5.0, neighbours={"s1": Neighbour(neighbour, program, 0.3)})
    with pytest.raises(LabError, match=says):
        SessionPlan(resource, 0.4, (stage,), seed=1, guest=guest)


@pytest.fixture
def _free_lab() -> None:
    """Not held: a session takes the lab itself."""
    try:
        host_cgroups()
        with exclusive():
            pass
    except LabError as error:
        pytest.skip(str(error))


@pytest.mark.root
@pytest.mark.usefixtures("_free_lab")
def test_a_session_records_what_it_did_and_changes_no_weight(tmp_path: Path) -> None:
    stage = Stage(6.0, 0.0, {"s2": HOG}, rate_factor=1.2, calibrate=True)
    plan = SessionPlan("cpu", 0.3, (stage,), seed=4, learn_s=4.0)
    phases: list[str] = []
    record = run_session(plan, tmp_path / "session", phases.append)
    (done,) = record.stages
    assert done.rho_bg is not None
    # As in test_machines: others use this computer too.
    assert done.rho_bg["s2"] == pytest.approx(0.5, abs=0.2)
    assert max(abs(done.rho_bg[name]) for name in ("s1", "s3")) < 0.2
    assert done.span.end_s - done.span.begin_s == pytest.approx(6.0 - 0.7, abs=0.5)
    assert done.span.begin_s >= record.learn.end_s
    assert record.rate_per_s == pytest.approx(0.3 * sum(record.quiet_rps.values()))
    observations = [tick.observation for tick in Recording(record.recording).ticks()]
    within = [
        seen
        for seen in observations
        if done.span.begin_s <= seen.now_s - seen.interval_s and seen.now_s <= done.span.end_s
    ]
    assert within
    for seen in within:
        rate_per_s = sum(backend.window.rate_per_s for backend in seen.backends)
        # 1.2 * 126 req/s in 2 s: 302 requests, standard deviation 17.
        assert rate_per_s == pytest.approx(1.2 * record.rate_per_s, rel=0.3)
    assert {b.server.weight for seen in observations for b in seen.backends} == {WEIGHT}
    assert {"calibrating 1/1", "warm-up", "learn", "stage 1/1"} <= set(phases)
