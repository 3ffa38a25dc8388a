"""One policy through quiet, contended and recovered phase, on machines that are there."""

from __future__ import annotations

import json
import math
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from dial_lab import haproxy, one_cache, reaction, restless, steady
from dial_lab.addresses import Address
from dial_lab.arrivals import Swing, out_of_step
from dial_lab.calibration import Calibration, require_alone
from dial_lab.guests import Guest
from dial_lab.loadgen import DRAIN_S, Results
from dial_lab.policies import Policy
from dial_lab.processes import Children
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult
from dial_lab.scenarios import Scenario, Visit
from dial_lab.serving import (
    HEAD_START_S,
    WARM_UP_S,
    Load,
    Pool,
    await_end,
    start_front,
    start_generator,
)
from dial_lab.stolen import Patience, Steal
from dial_lab.topology import Machine, private_directory

MOST_SLOWDOWN = 1.04
"""Of cores in a block whose requests are work: 8 % of P90 at half of the load (M/M/1), as
:data:`dial_lab.stolen.MOST_STOLEN` is at three quarters."""


@dataclass(frozen=True, slots=True)
class Site:
    """What all blocks of a run share."""

    scenario: Scenario
    machines: tuple[Machine, ...]
    addresses: Mapping[str, Address]
    """Where the application of each machine listens."""
    harness_cores: tuple[int, ...]
    rho_bg: float
    """What a neighbour is told to take of a machine it visits."""
    rate_per_s: float
    percentile: float
    seed: int
    phases: Phases
    guests: Mapping[str, Guest] = field(default_factory=dict)
    """Machines whose tenant has a kernel of its own, by name."""
    served: Mapping[str, Calibration] = field(default_factory=dict)
    """What a machine serves alone and beside its neighbour, by name, as measured last."""
    memory: Path | None = None
    """Where controllers keep what they learn for the next block, if they do."""
    patience: Patience = field(default_factory=Patience)
    """With whoever takes the lab's cores; the run's, so that it is spent once."""
    awake: restless.Restless | None = None
    """What keeps the cores from resting, and knows how quick they are."""
    given: steady.Steady | None = None
    """What gives machines more of a slow core, where requests are work."""

    @property
    def pool(self) -> Pool:
        """The tenant's applications."""
        return Pool(
            self.machines,
            self.addresses,
            self.scenario.resource.cost,
            self.harness_cores,
            self.percentile,
            self.guests,
            self.memory,
        )

    @property
    def cores(self) -> frozenset[int]:
        """All that are used, the neighbours' included."""
        machines = {core for each in self.machines for core in (each.core, *each.other_cores[-1:])}
        return frozenset(machines.union(self.harness_cores))

    @property
    def most_slowdown(self) -> float:
        """Of the machines' cores in a block that counts: any, where requests are CPU time."""
        return MOST_SLOWDOWN if self.scenario.resource.cost.of_work else math.inf

    def slowdown(self, begin_s: float, end_s: float) -> float | None:
        """Of the machines' cores, as :meth:`dial_lab.restless.Restless.slowdown` has it.

        Where machines are given more of a slow core, what is left of it.
        """
        if self.given is not None:
            return self.given.slowdown(begin_s, end_s)
        if self.awake is None:
            return None
        return self.awake.slowdown({each.core for each in self.machines}, begin_s, end_s)

    def too_slow(self, slowdown: float | None) -> str | None:
        """What shows that requests were no work of the usual length, if anything does."""
        if slowdown is None or slowdown <= self.most_slowdown:
            return None
        return restless.in_words(slowdown, self.most_slowdown)

    def await_own_cores(self, note: Callable[[str], None]) -> None:
        """Wait until the hypervisor leaves the lab's cores alone, or patience is at an end."""
        self.patience.wait(self.cores, note)

    def require_quick_cores(self) -> None:
        """That nobody outside the lab slows the victim's core and its neighbour's.

        Raises
        ------
        LabError
            As :func:`dial_lab.one_cache.require_quick`.
        """
        one_cache.require_quick(self.scenario.resource, self.machines[0])

    def require_alone(self) -> None:
        """That nobody outside the lab takes of the victim what a neighbour would.

        Raises
        ------
        LabError
            As :func:`dial_lab.calibration.require_alone`.
        """
        victim = self.machines[0]
        require_alone(self.scenario.resource, victim, self.addresses[victim.name])


@dataclass
class Progress:
    """What the live view shows of the block that runs; filled by :func:`run_block`."""

    policy: str
    phase: str = "starting"
    elapsed_s: float = 0.0
    """Since the start of the quiet phase; negative during warm-up."""
    load: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Rate and T_x by backend, from the generator."""
    plan: dict[str, Any] | None = None
    """The newest plan in the recording."""


def run_block(
    site: Site,
    policy: Policy,
    stream: int,
    directory: Path,
    show: Callable[[Progress], None],
) -> BlockResult:
    """Run one block; leaves logs, results and recording in ``directory``.

    Parameters
    ----------
    site
        Machines, applications and load.
    policy
        How requests are spread.
    stream
        Which stream of arrivals: the round, so that all policies of a round get the same.
    directory
        For files; is made.
    show
        Called about twice a second.

    Raises
    ------
    LabError
        If a program ends before its time.
    """
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    phases = site.phases
    progress = Progress(policy.name)
    with (
        private_directory() as private,
        Children(directory) as children,
        one_cache.watching(children, site.scenario.resource, site.machines[0]) as watch,
    ):
        show(progress)
        front = start_front(children, site.pool, policy, directory, private)
        control = front.control
        late_s = out_of_step(site.seed, stream) * (policy.interval_s or 0.0)
        start = time.monotonic() + HEAD_START_S + late_s
        load = Load(
            site.seed, stream, site.rate_per_s, WARM_UP_S + phases.end_s, swings=_swings(site)
        )
        out = directory / "requests.npz"
        generator = start_generator(
            children,
            site.pool,
            load,
            port=front.port,
            start=start,
            out=out,
            stdout=subprocess.PIPE,
        )
        reader = _follow(generator.stdout, progress)
        tail = _Tail(control.recording) if control is not None else None
        origin = start + WARM_UP_S
        origin_wall_s = time.time() + origin - time.monotonic()

        def wait_until(moment: float) -> None:
            while (left_s := moment - time.monotonic()) > 0:
                children.check()
                progress.elapsed_s = time.monotonic() - origin
                if tail is not None:
                    progress.plan = tail.newest_plan() or progress.plan
                show(progress)
                time.sleep(min(0.5, left_s))

        progress.phase = "warm-up"
        wait_until(origin)
        victim = site.machines[0]
        used_s = victim.cgroups.usage_s(victim.fg)
        steal = Steal(site.cores)
        progress.phase = "quiet"
        wait_until(origin + phases.quiet_s)
        progress.phase = "contended"
        _receive_visits(site, children, lambda at_s: wait_until(origin + at_s), front.told)
        wait_until(origin + phases.end_of_contention_s)
        progress.phase = "recovered"
        wait_until(origin + phases.end_s)
        used_s = victim.cgroups.usage_s(victim.fg) - used_s
        stolen = steal.part()
        await_end(generator, DRAIN_S + 5.0)
        reader.join()
        children.stop(generator)
        apart = None if watch is None else watch.apart(*(origin + s for s in _looked_at_s(site)))
        slowdown = site.slowdown(origin, origin + phases.end_s)
    results = Results.load(out).shifted(-WARM_UP_S)
    judged = None
    if control is not None:
        judged = reaction.read(
            control.recording,
            victim.name,
            origin_wall_s,
            phases,
            # Where nobody comes it is quiet to the end, whatever the tenant's own load does.
            quiet_s=phases.quiet_s if site.scenario.visits else phases.end_s,
        )
    return BlockResult(policy.name, phases, results, judged, apart, used_s, stolen, slowdown)


def _looked_at_s(site: Site) -> tuple[float, float]:
    """The neighbour's time, or all of it where nobody comes, as while a controller learns."""
    phases = site.phases
    if site.scenario.visits:
        return phases.quiet_s, phases.end_of_contention_s
    return 0.0, phases.end_s


def _receive_visits(
    site: Site, children: Children, wait_until: Callable[[float], None], told: Path | None
) -> None:
    """Start and stop the neighbours of the contended phase, each at its moment.

    Who balances by true capacities is told of each through ``told``.
    """
    phases = site.phases
    events: list[tuple[float, int, Visit | None]] = []
    for number, planned in enumerate(site.scenario.visits):
        begin_s = phases.quiet_s + planned.begin * phases.contended_s
        end_s = phases.quiet_s + planned.end * phases.contended_s
        events += [(begin_s, number, planned), (end_s, number, None)]
    running: dict[int, subprocess.Popen[bytes]] = {}
    for at_s, number, visit in sorted(events, key=lambda event: event[0]):
        wait_until(at_s)
        if visit is None:
            children.stop(running.pop(number))
            if told is not None:
                machine = site.machines[site.scenario.visits[number].machine]
                haproxy.tell(told, machine.name, 1.0)
            continue
        lasts_s = (visit.end - visit.begin) * phases.contended_s
        machine = site.machines[visit.machine]
        running[number] = site.scenario.taken_by(visit).start_neighbour(
            children, machine, visit.part * site.rho_bg, lasts_s, visit.program
        )
        if told is not None:
            left = 1.0 - visit.part * site.served[machine.name].rho_bg
            haproxy.tell(told, machine.name, left)


def _swings(site: Site) -> list[Swing]:
    """The tenant's own load in the contended phase."""
    return site.scenario.swings(
        WARM_UP_S + site.phases.quiet_s, WARM_UP_S + site.phases.end_of_contention_s
    )


def _follow(lines: IO[bytes] | None, progress: Progress) -> threading.Thread:
    """Keep the newest line of the generator; a pipe nobody reads would stop it."""

    def follow() -> None:
        for line in lines or ():
            progress.load = json.loads(line)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    return thread


class _Tail:
    """Reads what a recording has grown by; for the live view only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def newest_plan(self) -> dict[str, Any] | None:
        """The newest plan since the last call."""
        if not self._path.exists():
            return None
        plan = None
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._at += len(line)
                document = json.loads(line)
                plan = document.get("plan", plan)
        return plan


def total_s(phases: Phases, policies: Sequence[Policy]) -> float:
    """About how long one round takes, for the progress bar."""
    return sum(phases.end_s + WARM_UP_S + 2.5 + 1.5 * (p.interval_s or 0.0) for p in policies)
