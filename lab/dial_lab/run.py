"""A whole run: machines, calibration, every policy in every round, report."""

from __future__ import annotations

import math
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dial.errors import LabError
from dial_lab import isolation, report
from dial_lab.apache import ApacheOnCpu
from dial_lab.block import Site, run_block, total_s
from dial_lab.calibration import Calibration, calibrate_all
from dial_lab.guests import under
from dial_lab.live import View
from dial_lab.policies import Policy
from dial_lab.processes import Children
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult
from dial_lab.resources import CPU
from dial_lab.scenarios import SCENARIOS, Scenario
from dial_lab.topology import exclusive, host_cgroups, machines, place

MACHINES = ("s1", "s2", "s3")
"""The first one is the victim."""

APPS = ("lab", "apache")
"""What the tenant runs: the lab's own application, or one that nobody here wrote."""

GUESTS = ("shared", "uml")
"""Whose kernel a tenant runs under: the computer's, or one of its own."""

LEAST_QUIET_S, MOST_QUIET_S = 20.0, 120.0
"""Before and after the contended phase; a soak of half an hour need not wait ten minutes."""

_CALIBRATION_S = 8.0

_TRY_S = 15.0
"""Contended time in which a setting is tried."""

_LEARN_TRIES = 3
_DISTURBED_MS = 2 * report.LATE_MS
"""Lateness of the generator at P99 above which something else had the computer, and what was
learnt is no quiet past: with it in mind, a controller sees no neighbour in all of a run."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a run; checked when made.

    Raises
    ------
    LabError
        Naming the option, its value and what is allowed.
    """

    scenario: Scenario
    policies: tuple[Policy, ...]
    load: float | None
    rate_per_s: float | None
    severity: float
    contended_s: float
    rounds: int
    percentile: float
    seed: int
    guest: str = "shared"
    app: str = "lab"
    learn_once: bool = False
    """Controllers learn before the first round, and blocks are the contended phase alone: each
    begins after the warm-up, with what the controller had learnt before the first of them."""

    def __post_init__(self) -> None:
        """Check ranges."""
        allowed: tuple[tuple[str, float | None, float, float], ...] = (
            ("--load", self.load, 0.01, 2.0),
            ("--rate", self.rate_per_s, 1.0, 2000.0),
            ("--severity", self.severity, 0.05, 0.95),
            ("--seconds", self.contended_s, 5.0, 3600.0),
            ("--rounds", self.rounds, 1, 100),
            ("--percentile", self.percentile, 50.0, 99.9),
            ("--seed", self.seed, 0, 2**32 - 1),
        )
        for option, value, least, most in allowed:
            if value is not None and not least <= value <= most:
                raise LabError(f"{option} {value:g}: allowed is {least:g} to {most:g}")
        if self.load is not None and self.rate_per_s is not None:
            raise LabError("--load and --rate: give one of them, the other follows from it")
        if self.guest not in GUESTS:
            raise LabError(f"--guest {self.guest}: no such kind; allowed: {', '.join(GUESTS)}")
        able = ", ".join(one.name for one in SCENARIOS.values() if one.resource is CPU)
        if self.guest == "uml" and self.scenario.resource is not CPU:
            raise LabError(f"--guest uml: not with scenario {self.scenario.name}; allowed: {able}")
        if self.app not in APPS:
            raise LabError(f"--app {self.app}: no such application; allowed: {', '.join(APPS)}")
        if self.app != "lab" and (self.guest != "shared" or self.scenario.resource is not CPU):
            raise LabError(
                f"--app {self.app}: not with --guest {self.guest} and scenario "
                f"{self.scenario.name}; allowed: --guest shared with {able}"
            )
        names = [policy.name for policy in self.policies]
        if len(set(names)) < len(names):
            raise LabError(f"--policy {' '.join(names)}: each may be given once")

    @property
    def phases(self) -> Phases:
        """Quiet and recovered scale with the contended phase, above what controllers need."""
        if self.learn_once:
            return Phases(0.0, self.contended_s, 0.0)
        slowest_s = max((policy.learns_s for policy in self.policies), default=0.0)
        third_s = min(0.33 * self.contended_s, MOST_QUIET_S)
        around_s = max(LEAST_QUIET_S, slowest_s, third_s)
        return Phases(around_s, self.contended_s, around_s)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run leaves."""

    report: dict[str, Any]
    """As written to JSON."""
    blocks: dict[str, list[BlockResult]]
    directory: Path


def execute(request: Request, directory: Path, view: View) -> Outcome:
    """Run everything that is asked.

    Parameters
    ----------
    request
        What to run.
    directory
        For logs, recordings and results of each block.
    view
        Shows how it goes.

    Raises
    ------
    LabError
        If the lab cannot run here, or a program ended before its time.
    """
    cgroups = host_cgroups()
    cores = sorted(os.sched_getaffinity(0))
    order = request.policies
    scenario = request.scenario
    with (
        exclusive(),
        machines(cgroups, MACHINES, cores, apart=scenario.resource.victim_apart) as built,
        Children(directory) as children,
        ExitStack() as tenants,
    ):
        harness = place(cores, len(built), apart=scenario.resource.victim_apart).harness
        # The lab's own process is one of those that keep off the machines' cores.
        os.sched_setaffinity(0, harness)
        try:
            view.begin(_CALIBRATION_S + request.rounds * total_s(request.phases, order))
            if request.guest == "uml":
                view.note("booting: a kernel of its own for each machine's tenant")
            wanted = ApacheOnCpu() if request.app == "apache" else scenario.resource
            resource, vms = tenants.enter_context(under(request.guest, wanted, built, children))
            scenario = replace(scenario, resource=resource)
            view.note("calibrating: what a machine can serve, alone and contended")
            addresses = tenants.enter_context(scenario.resource.tenants(built, children))
            measured = calibrate_all(
                children, scenario, built, addresses, rho_bg=1.0 - request.severity
            )
            rate_per_s = request.rate_per_s or (request.load or 0.0) * _left_rps(measured)
            site = Site(
                scenario,
                built,
                addresses,
                harness,
                1.0 - request.severity,
                rate_per_s,
                request.percentile,
                request.seed,
                request.phases,
                vms,
                left={
                    machine.name: 1.0 - each.rho_bg
                    for machine, each in zip(built, measured, strict=True)
                },
            )
            view.note(describe(measured, site))
            learnt = directory / "memory" if request.learn_once else None
            if learnt is not None:
                _learn(request, site, learnt, directory, view)
            order = tuple(_tuned(request, site, policy, directory, view) for policy in order)
            request = replace(request, policies=order)
            blocks: dict[str, list[BlockResult]] = {policy.name: [] for policy in order}
            for number in range(request.rounds):
                # Who comes first warms the computer for the others: take turns.
                turn = number % len(order)
                for policy in (*order[turn:], *order[:turn]):
                    children.check()
                    where = directory / f"{number + 1}-{policy.name}"
                    remembers = _remembering(site, policy, learnt, where)
                    block = run_block(remembers, policy, number, where, view.show)
                    blocks[policy.name].append(block)
                    view.note(_summary(block, request.percentile))
        finally:
            os.sched_setaffinity(0, cores)
    return Outcome(document(request, site, measured, blocks), blocks, directory)


def _learn(request: Request, site: Site, learnt: Path, directory: Path, view: View) -> None:
    """A quiet block for each policy that learns, of which nothing but its memory is kept."""
    alone = replace(site.scenario, visits=(), rate_factor=1.0, cost_factor=1.0, days=0)
    for policy in request.policies:
        if not policy.learns:
            continue
        quiet_s = max(LEAST_QUIET_S, policy.learns_s)
        phases = Phases(quiet_s, 0.0, 0.0)
        quiet = replace(site, scenario=alone, phases=phases, memory=learnt)
        for tried in range(1, _LEARN_TRIES + 1):
            view.note(f"{policy.name} learns for {quiet_s:g} s")
            shutil.rmtree(learnt / policy.name, ignore_errors=True)
            where = directory / f"0-{policy.name}-{tried}"
            block = run_block(quiet, policy, request.rounds, where, view.show)
            late_ms = report.lateness_ms(block.results)
            if late_ms <= _DISTURBED_MS:
                break
            view.note(f"the generator was {late_ms:.0f} ms late: something else had the computer")


def _tuned(request: Request, site: Site, policy: Policy, directory: Path, view: View) -> Policy:
    """The policy with the best of its candidate settings: a block each, with the same requests."""
    if not policy.candidates:
        return policy
    t_x_ms = {}
    brief = replace(site, phases=Phases(0.0, min(request.contended_s, _TRY_S), 0.0))
    for setting in policy.candidates:
        tried = replace(policy, setting=setting)
        where = directory / f"0-{policy.name}-{setting}"
        # A stream that no round has: what is tuned on the very requests fits their noise.
        block = run_block(brief, tried, request.rounds + 1, where, view.show)
        latency_ms = report.together(report.pieces([block], "contended"))
        t_x_ms[setting] = report.percentile_ms(latency_ms, request.percentile) or math.inf
    best = min(t_x_ms, key=lambda setting: t_x_ms[setting])
    tried_ms = ", ".join(f"{setting} {ms:g} ms" for setting, ms in t_x_ms.items())
    view.note(f"{policy.name}: {best} is the best setting of {tried_ms}")
    return replace(policy, setting=best)


def _remembering(site: Site, policy: Policy, learnt: Path | None, where: Path) -> Site:
    """The site for one block, whose controller remembers what was learnt, and no other block."""
    if learnt is None or not policy.learns:
        return site
    own = where / "memory"
    shutil.copytree(learnt / policy.name, own / policy.name)
    return replace(site, memory=own)


def describe(measured: Sequence[Calibration], site: Site) -> str:
    """One line on what was measured and what follows."""
    text = f"a machine serves {measured[0].quiet_rps:.0f} req/s alone"
    for number in sorted(site.scenario.victims):
        text += (
            f", {site.machines[number].name} {measured[number].contended_rps:.0f} when contended "
            f"(rho_bg {measured[number].rho_bg:.2f})"
        )
    load = site.rate_per_s / _left_rps(measured)
    return f"{text}; offered: {site.rate_per_s:.0f} req/s = {load:.2f} of what is left"


def _left_rps(measured: Sequence[Calibration]) -> float:
    """What all machines together can serve during contention, req/s."""
    return sum(machine.contended_rps for machine in measured)


def _summary(block: BlockResult, percentile: float) -> str:
    parts = []
    for phase in block.phases.bounds():
        figures = report.pieces([block], phase)
        t_x_ms = report.percentile_ms(report.together(figures), percentile)
        parts.append(f"{phase} {t_x_ms if t_x_ms is not None else '-'} ms")
    return f"{block.policy}: P{percentile:g} {', '.join(parts)}"


def document(
    request: Request,
    site: Site,
    measured: Sequence[Calibration],
    blocks: dict[str, list[BlockResult]],
) -> dict[str, Any]:
    """The JSON report (its keys are promised in docs)."""
    contended = bool(request.scenario.visits)
    rho_bg = round(measured[0].rho_bg, 4) if contended else None
    if request.scenario.own_doing:
        rho_bg = 0.0
    policies = {name: report.policy_figures(of, rho_bg) for name, of in blocks.items()}
    for name, of in blocks.items():
        if request.scenario.steps:
            isolated = isolation.figures(request.scenario.steps, of, request.percentile)
            policies[name]["isolation"] = isolated
    for policy in request.policies:
        if policy.setting:
            policies[policy.name]["setting"] = policy.setting
    late_ms = max(figures["generator_late_p99_ms"] for figures in policies.values())
    bounds = request.phases.bounds()
    return {
        "scenario": request.scenario.name,
        "load": round(site.rate_per_s / _left_rps(measured), 4),
        "rate_per_s": round(site.rate_per_s, 2),
        "severity": request.severity if contended else None,
        "percentile": request.percentile,
        "seed": request.seed,
        "guest": request.guest,
        "app": request.app,
        "lb": "+".join(sorted({policy.lb for policy in request.policies})),
        "machine": machine_facts(),
        "commit": commit(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "phases_s": {name: [first, last] for name, (first, last) in bounds.items()},
        "rounds": request.rounds,
        "victim": site.machines[0].name,
        "calibration": {
            "peak_rps": round(measured[0].quiet_rps, 2),
            "contended_rps": round(measured[0].contended_rps, 2),
            "machines": {
                machine.name: {"contended_rps": round(each.contended_rps, 2)}
                for machine, each in zip(site.machines, measured, strict=True)
            },
        },
        "generator_kept_up": late_ms <= report.LATE_MS,
        "policies": policies,
        "ratios": report.ratios(blocks, request.percentile, request.seed),
    }


def machine_facts() -> dict[str, Any]:
    """What this computer is."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cores": os.cpu_count(), "kernel": platform.release(), "cpu": model}


def commit() -> str | None:
    """Commit of the checkout the lab runs from, ``-dirty`` with changes; ``None`` outside."""
    here = Path(__file__).parent
    try:
        said = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()
