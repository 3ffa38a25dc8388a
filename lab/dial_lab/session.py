"""A session: what a watching controller sees while neighbours come and go, and the truth of it.

Where a run (:mod:`dial_lab.run`) compares policies, a session records.  The requests go round
robin at an even share, the controller never writes (shadow mode), and so the only things that
change are the neighbours and the tenant's own load, as the plan says::

    calibration | warm-up | learn (quiet) | stage 0 | rest | stage 1 | rest | ...

In one stage each machine may have a neighbour of its own, or none.  The true rho_bg of a stage
is measured before the load starts: all machines are saturated at once, first alone and then
beside the stage's neighbours, which takes no longer for three machines than for one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dial.errors import LabError
from dial.types import Mode
from dial_lab import report
from dial_lab.arrivals import Swing
from dial_lab.calibration import CALIBRATION_S, SETTLE_S, saturation_rps_together
from dial_lab.guests import under
from dial_lab.loadgen import DRAIN_S, Results
from dial_lab.policies import Policy
from dial_lab.processes import Children
from dial_lab.request import GUESTS, MACHINES
from dial_lab.resources import CPU, RESOURCES, Resource
from dial_lab.serving import (
    HEAD_START_S,
    WARM_UP_S,
    Load,
    Pool,
    await_end,
    start_front,
    start_generator,
)
from dial_lab.topology import Machine, exclusive, host_cgroups, machines, place, private_directory

POLICY = Policy("session", "roundrobin", interval_s=2.0, mode=Mode.SHADOW, memory_probe=True)
"""As ``dial``, but never writing, and with ticks of 2 s, as all sessions have been recorded; with
all that an agent can measure, for whoever fits a model decides what of it is of use."""

REVISION = 2
"""Raised when the same plan comes to yield another recording: machines, links, programs, log.

2: response times end with the last byte; every machine has a link; the cache's probe.
"""

START_S = 12.0
"""From nothing to the load's first request, calibrations of stages excluded, for the
prediction of a session's length: measured with disks."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What a machine is visited by."""

    resource: str
    """A key of :data:`dial_lab.resources.RESOURCES`."""
    program: str
    rho_bg: float


@dataclass(frozen=True, slots=True)
class Stage:
    """Some seconds in which nothing changes."""

    seconds: float
    rest_s: float = 0.0
    """Quiet time after it: queues run empty."""
    neighbours: Mapping[str, Neighbour] = field(default_factory=dict)
    """By machine; one that is not named has none."""
    rate_factor: float = 1.0
    """The tenant's own arrival rate, over that at other times."""
    cost_factor: float = 1.0
    """The same for the mean cost of a request."""
    calibrate: bool = False
    """Whether its true rho_bg is measured."""


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What is to be recorded; checked when made.

    Raises
    ------
    LabError
        Naming the stage, what is wrong with it, and what is allowed.
    """

    resource: str
    """What requests cost: a key of :data:`dial_lab.resources.RESOURCES`."""
    load: float
    """rho_fg: the arrival rate over the saturation throughput of all machines, alone."""
    stages: tuple[Stage, ...]
    seed: int
    learn_s: float = 24.0
    percentile: float = 90.0
    guest: str = "shared"
    """Whose kernel the tenants run under: one of :data:`dial_lab.request.GUESTS`."""

    def __post_init__(self) -> None:
        """Check names and ranges."""
        _allow("resource", self.resource, RESOURCES)
        _allow("guest", self.guest, GUESTS)
        if self.guest == "uml" and (taken := self._taken() - {CPU.name}):
            raise LabError(f"guest uml: not with {', '.join(sorted(taken))}; allowed: {CPU.name}")
        if not self.stages:
            raise LabError("a session needs a stage at least")
        if not 0.0 < self.load < 1.0:
            raise LabError(f"load {self.load:g}: allowed is above 0 and below 1")
        for number, stage in enumerate(self.stages):
            for machine, neighbour in stage.neighbours.items():
                where = f"stage {number}, {machine}"
                _allow(f"stage {number}: machine", machine, MACHINES)
                _allow(f"{where}: resource", neighbour.resource, RESOURCES)
                programs = RESOURCES[neighbour.resource].programs
                _allow(f"{where}: {neighbour.resource} program", neighbour.program, programs)
                if not 0.0 < neighbour.rho_bg < 1.0:
                    raise LabError(
                        f"{where}: rho_bg {neighbour.rho_bg:g}: allowed is above 0 and below 1"
                    )

    def _taken(self) -> set[str]:
        """Every resource that has a part in it."""
        visits = [visit for stage in self.stages for visit in stage.neighbours.values()]
        return {self.resource, *(visit.resource for visit in visits)}

    @property
    def load_s(self) -> float:
        """How long requests are offered, warm-up included."""
        stages_s = sum(stage.seconds + stage.rest_s for stage in self.stages)
        return WARM_UP_S + self.learn_s + stages_s - self.stages[-1].rest_s

    @property
    def expected_s(self) -> float:
        """About how long the session takes."""
        calibrated = sum(stage.calibrate for stage in self.stages)
        return START_S + calibrated * (SETTLE_S + CALIBRATION_S) + self.load_s


@dataclass(frozen=True, slots=True)
class Span:
    """A time by the wall clock, seconds since the epoch."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage as it was."""

    span: Span
    """In which its neighbours were there, a moment for their start not counted."""
    rho_bg: Mapping[str, float] | None
    """By machine, as calibrated; around 0 without a neighbour."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What a session leaves."""

    recording: Path
    """The controller's; see :mod:`dial.controller.recording`."""
    learn: Span
    """Quiet, after the warm-up."""
    stages: tuple[StageRecord, ...]
    """As many as planned."""
    quiet_rps: Mapping[str, float]
    """Saturation throughput by machine, with nobody beside it."""
    rate_per_s: float
    """Of all requests, outside stages that change it."""
    late_p99_ms: float
    """How late the load generator was."""


Show = Callable[[str], None]
"""Told about twice a second what goes on."""


def run_session(plan: SessionPlan, directory: Path, show: Show) -> SessionRecord:
    """Run one session; leaves logs, results and the recording in ``directory``.

    Parameters
    ----------
    plan
        What to record.
    directory
        For files; is made.
    show
        See :data:`Show`.

    Raises
    ------
    LabError
        If the lab cannot run here, or a program ended before its time.
    """
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    cgroups = host_cgroups()
    cores = sorted(os.sched_getaffinity(0))
    resource: Resource = RESOURCES[plan.resource]
    with (
        exclusive(),
        machines(cgroups, MACHINES, cores, apart=resource.victim_apart) as built,
        Children(directory) as children,
        ExitStack() as tenants,
    ):
        harness = place(cores, len(built), apart=resource.victim_apart).harness
        # The lab's own process is one of those that keep off the machines' cores.
        os.sched_setaffinity(0, harness)
        try:
            show("starting")
            resource, vms = tenants.enter_context(under(plan.guest, resource, built, children))
            addresses = tenants.enter_context(resource.tenants(built, children))
            pool = Pool(built, addresses, resource.cost, harness, plan.percentile, vms)
            show("calibrating")
            quiet_rps = saturation_rps_together(addresses, resource.cost, CALIBRATION_S)
            lost = []
            for number, stage in enumerate(plan.stages):
                show(f"calibrating {number + 1}/{len(plan.stages)}")
                lost.append(_lost(children, pool, stage, quiet_rps) if stage.calibrate else None)
            return _record(
                plan,
                children,
                pool,
                quiet_rps=quiet_rps,
                lost=lost,
                directory=directory,
                show=show,
            )
        finally:
            os.sched_setaffinity(0, cores)


def _lost(
    children: Children, pool: Pool, stage: Stage, quiet_rps: Mapping[str, float]
) -> dict[str, float]:
    """The share of each machine's saturation throughput that a stage's neighbours take."""
    with _visited(children, pool.machines, stage, CALIBRATION_S + SETTLE_S):
        saturation_rps_together(pool.addresses, pool.cost, SETTLE_S)
        rps = saturation_rps_together(pool.addresses, pool.cost, CALIBRATION_S)
        # A neighbour that could not even start would pass for one that takes nothing.
        children.check()
    return {name: 1.0 - rps[name] / quiet_rps[name] for name in rps}


def _record(
    plan: SessionPlan,
    children: Children,
    pool: Pool,
    *,
    quiet_rps: Mapping[str, float],
    lost: list[dict[str, float] | None],
    directory: Path,
    show: Show,
) -> SessionRecord:
    """From the balancer's start to the last answer."""
    rate_per_s = plan.load * sum(quiet_rps.values())
    load = Load(plan.seed, 0, rate_per_s, plan.load_s, _swings(plan))
    out = directory / "requests.npz"
    stages = []
    with private_directory() as private, Children(directory) as serving:
        show("waiting for the agents")
        front = start_front(serving, pool, POLICY, directory, private)
        assert front.control is not None  # noqa: S101 - the policy has an interval
        start = time.monotonic() + HEAD_START_S
        generator = start_generator(serving, pool, load, port=front.port, start=start, out=out)

        def wait_until(at_s: float, phase: str) -> None:
            while (left_s := start + at_s - time.monotonic()) > 0:
                serving.check()
                children.check()
                show(phase)
                time.sleep(min(0.5, left_s))

        wait_until(WARM_UP_S, "warm-up")
        learn_from_s = time.time()
        learnt_s = WARM_UP_S + plan.learn_s
        wait_until(learnt_s, "learn")
        learn = Span(learn_from_s, time.time())
        for number, (stage, begin_s) in enumerate(_begins(plan)):
            wait_until(begin_s, "rest")
            with _visited(children, pool.machines, stage, stage.seconds):
                visited_s = time.time() + SETTLE_S
                wait_until(begin_s + stage.seconds, f"stage {number + 1}/{len(plan.stages)}")
                stages.append(StageRecord(Span(visited_s, time.time()), lost[number]))
        show("draining")
        await_end(generator, HEAD_START_S + DRAIN_S + 5.0)
        serving.check()
    late_ms = report.lateness_ms(Results.load(out))
    return SessionRecord(
        front.control.recording, learn, tuple(stages), quiet_rps, rate_per_s, late_ms
    )


@contextmanager
def _visited(
    children: Children, built: tuple[Machine, ...], stage: Stage, lasts_s: float
) -> Iterator[None]:
    """Start the neighbours of a stage, and stop them at exit."""
    running = []
    try:
        for machine in built:
            planned = stage.neighbours.get(machine.name)
            if planned is not None:
                resource = RESOURCES[planned.resource]
                running.append(
                    resource.start_neighbour(
                        children, machine, planned.rho_bg, lasts_s, planned.program
                    )
                )
        yield
    finally:
        for process in running:
            children.stop(process)


def _begins(plan: SessionPlan) -> Iterator[tuple[Stage, float]]:
    """Each stage and when it begins, in seconds from the load's start."""
    at_s = WARM_UP_S + plan.learn_s
    for stage in plan.stages:
        yield stage, at_s
        at_s += stage.seconds + stage.rest_s


def _swings(plan: SessionPlan) -> list[Swing]:
    """The tenant's own load in the stages that change it."""
    return [
        Swing(begin_s, begin_s + stage.seconds, stage.rate_factor, stage.cost_factor)
        for stage, begin_s in _begins(plan)
        if (stage.rate_factor, stage.cost_factor) != (1.0, 1.0)
    ]


def _allow(what: str, value: str, allowed: Mapping[str, object] | tuple[str, ...]) -> None:
    if value not in allowed:
        raise LabError(f"{what} {value}: there is none of that name; allowed: {', '.join(allowed)}")
