"""A whole run: machines, calibration, every policy in every round, report.

Machines are calibrated anew before each round.  The load, where it is a part of what they can
serve, and what the oracle is told follow from the median of the three newest calibrations.  Of
three, since in one good moment of a shared computer a machine served 160 requests a second where it
serves 140, and three quarters of that were more than it could do in all rounds to come; of the
newest, since a victim in the cache served 85 beside its neighbour before one round and 32 before
the next.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from dial.errors import LabUnquiet
from dial_lab import isolation, report, restless, steady
from dial_lab.apache import ApacheOnCpu
from dial_lab.block import Site, run_block, total_s
from dial_lab.calibration import Calibration, calibrate_all, middle
from dial_lab.guests import under
from dial_lab.learning import as_tuned, learn, remembering, tuned
from dial_lab.live import View
from dial_lab.order import in_round
from dial_lab.patience import when_quiet
from dial_lab.policies import Policy
from dial_lab.processes import Children
from dial_lab.report import BlockResult
from dial_lab.request import MACHINES, Request
from dial_lab.rounds import Kept, Round, by_policy
from dial_lab.stolen import Patience
from dial_lab.topology import exclusive, host_cgroups, machines, place
from dial_lab.undisturbed import undisturbed

_CALIBRATION_S = 9.0
"""Three seconds alone, three beside the neighbour, what comes before each, and a start."""

_NEWEST = 3
"""Calibrations that say what machines can serve, where the load is a part of that."""

ENOUGH_ROUNDS = 5
"""To say something, as for a cell of the matrix: they are not thrown away for one more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run leaves."""

    report: dict[str, Any]
    """As written to JSON."""
    blocks: dict[str, list[BlockResult]]
    directory: Path


def execute(request: Request, directory: Path, view: View, kept: Kept | None = None) -> Outcome:
    """Run everything that is asked.

    Parameters
    ----------
    request
        What to run.
    directory
        For logs, recordings and results of each block.
    view
        Shows how it goes.
    kept
        Rounds of the same run that are done, if it goes on with them; gets each that is added.

    Raises
    ------
    LabError
        If the lab cannot run here, or a program ended before its time.
    """
    began_s = time.monotonic()
    rounds = [] if kept is None else kept.rounds.copy()
    first = len(rounds)
    order = as_tuned(request.policies, rounds[0].settings if first else {})
    newest = _NEWEST if request.rate_per_s is None else 1
    todo = request.rounds - first
    calibrations_s = (newest + todo - 1) * _CALIBRATION_S
    about_s = calibrations_s + todo * total_s(request.phases, order)
    view.begin(about_s)
    if first:
        view.note(f"going on after {first} of {request.rounds} rounds")
    with _site(request, directory, view, Patience(about_s)) as (site_at_rest, children):
        calibrated = partial(calibrated_alone, site_at_rest, children, view.note)
        view.note("calibrating: what a machine can serve, alone and contended")
        several: list[Sequence[Calibration]] = [
            when_quiet(calibrated, view.note) for _ in range(newest)
        ]
        served: Sequence[Calibration] = middle(several)
        site = as_measured(site_at_rest, request, served)
        view.note(describe(served, site))
        learnt = directory / "memory" if request.learn_once else None
        if learnt is not None:
            learn(request, site, learnt, directory, view)
        order = tuple(tuned(request, site, policy, directory, view) for policy in order)
        settings = {policy.name: policy.setting for policy in order if policy.setting}
        for number in range(first, request.rounds):
            if number > first:
                again = calibrated_again(calibrated, view, done=number, kept=kept is not None)
                if again is None:
                    break
                several, served = [*several[1:], again], again
                site = as_measured(site, request, middle(several))
                view.note(describe(middle(several), site))
            blocks: dict[str, BlockResult] = {}
            for policy in in_round(number, order):
                children.check()
                blocks[policy.name] = _block(
                    site, policy, number, directory, learnt=learnt, view=view
                )
            took_s, began_s = time.monotonic() - began_s, time.monotonic()
            rounds.append(Round(served, site.rate_per_s, settings, blocks, took_s))
            if kept is not None:
                kept.add(rounds[-1])
    return Outcome(document(request, site, rounds), by_policy(rounds), directory)


def calibrated_alone(
    site: Site, children: Children, note: Callable[[str], None]
) -> Sequence[Calibration]:
    """What the machines serve, while the hypervisor and whoever makes work longer leave them alone.

    Parameters
    ----------
    site
        The machines.
    children
        Gets the neighbours.
    note
        Is told of waits.

    Raises
    ------
    LabUnquiet
        If they do not.
    """
    site.await_own_cores(note)
    began_s = time.monotonic()
    found = calibrate_all(
        children, site.scenario, site.machines, site.addresses, rho_bg=site.rho_bg
    )
    slow = site.too_slow(site.slowdown(began_s, time.monotonic()))
    if slow is not None:
        raise LabUnquiet(slow)
    return found


@contextmanager
def _site(
    request: Request, directory: Path, view: View, patience: Patience
) -> Iterator[tuple[Site, Children]]:
    """Machines with their tenants, without load; the lab's own process keeps off their cores.

    No core rests meanwhile (:mod:`dial_lab.restless`; where a cache is taken, in blocks and
    calibrations, :mod:`dial_lab.two_cores`), and where requests are work, machines have more of a
    slow core (:mod:`dial_lab.steady`).
    """
    cores = sorted(os.sched_getaffinity(0))
    scenario = request.scenario
    wanted = ApacheOnCpu() if request.app == "apache" else scenario.resource
    apart, of_work = wanted.victim_apart, wanted.cost.of_work
    cgroups = host_cgroups()
    with (
        exclusive(),
        machines(cgroups, MACHINES, cores, apart=apart, of_work=of_work) as built,
        Children(directory) as children,
        ExitStack() as tenants,
    ):
        harness = place(cores, len(built), apart=apart).harness
        os.sched_setaffinity(0, harness)
        try:
            # Where a cache is taken two cores are kept from resting while they share one.
            awake = None if apart else restless.start(children, cores, cgroups, of_work=of_work)
            if request.guest == "uml":
                view.note("booting: a kernel of its own for each machine's tenant")
            given = None
            if of_work and awake is not None:
                given = tenants.enter_context(steady.kept(built, awake))
            resource, vms = tenants.enter_context(under(request.guest, wanted, built, children))
            site = Site(
                replace(scenario, resource=resource),
                built,
                tenants.enter_context(resource.tenants(built, children)),
                harness,
                1.0 - request.severity,
                0.0,
                request.percentile,
                request.seed,
                request.phases,
                vms,
                patience=patience,
                awake=awake,
                given=given,
            )
            yield site, children
        finally:
            os.sched_setaffinity(0, cores)


def calibrated_again(
    calibrated: Callable[[], Sequence[Calibration]], view: View, *, done: int, kept: bool
) -> Sequence[Calibration] | None:
    """What machines can serve before one more round; ``None`` where the run ends with those done.

    Parameters
    ----------
    calibrated
        Measures it.
    view
        Is told why the run ends.
    done
        Rounds that are.
    kept
        Whether another run goes on with them, so that none is lost.

    Raises
    ------
    LabUnquiet
        If strangers stay, and the rounds are kept or too few to say anything.
    """
    try:
        return when_quiet(calibrated, view.note)
    except LabUnquiet as unquiet:
        if kept or done < ENOUGH_ROUNDS:
            raise
        view.note(f"{unquiet}; the {done} rounds that are done are kept")
        return None


def _block(
    site: Site, policy: Policy, number: int, directory: Path, *, learnt: Path | None, view: View
) -> BlockResult:
    """One policy in one round, once more where somebody disturbed it."""

    def once(where: Path) -> BlockResult:
        return run_block(remembering(site, policy, learnt, where), policy, number, where, view.show)

    where = directory / f"{number + 1}-{policy.name}"
    block = undisturbed(once, where, site, view.note)
    view.note(_summary(block, site.percentile))
    return block


def as_measured(site: Site, request: Request, measured: Sequence[Calibration]) -> Site:
    """The same, with the load that is asked of machines that serve so much."""
    return replace(
        site,
        rate_per_s=request.rate_per_s or (request.load or 0.0) * _left_rps(measured),
        served={machine.name: each for machine, each in zip(site.machines, measured, strict=True)},
    )


def describe(measured: Sequence[Calibration], site: Site) -> str:
    """One line on what was measured and what follows."""
    text = f"a machine serves {measured[0].quiet_rps:.0f} req/s alone"
    for number in sorted(site.scenario.victims):
        text += (
            f", {site.machines[number].name} {measured[number].contended_rps:.0f} when contended "
            f"(rho_bg {measured[number].rho_bg:.2f})"
        )
    if site.scenario.resource.victim_apart:
        siblings = ", ".join(f"{each.quiet_rps:.0f}" for each in measured[1:])
        text += f", its siblings {siblings}"
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
    rounds: Sequence[Round],
) -> dict[str, Any]:
    """The JSON report (its keys are promised in docs)."""
    first = rounds[0]
    blocks = by_policy(rounds)
    measured = first.served
    contended = bool(request.scenario.visits)
    rho_bg = round(measured[0].rho_bg, 4) if contended else None
    if request.scenario.own_doing:
        rho_bg = 0.0
    policies = {name: report.policy_figures(of, rho_bg) for name, of in blocks.items()}
    for name, of in blocks.items():
        if request.scenario.steps:
            isolated = isolation.figures(request.scenario.steps, of, request.percentile)
            policies[name]["isolation"] = isolated
    for name, setting in first.settings.items():
        policies[name]["setting"] = setting
    late_ms = max(figures["generator_late_p99_ms"] for figures in policies.values())
    bounds = request.phases.bounds()
    return {
        "scenario": request.scenario.name,
        "load": round(first.rate_per_s / _left_rps(measured), 4),
        "rate_per_s": round(median(each.rate_per_s for each in rounds), 2),
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
        "rounds": len(rounds),
        "took_s": round(sum(each.took_s for each in rounds)),
        "victim": site.machines[0].name,
        "neighbours": list(request.scenario.neighbours),
        "calibration": {
            **_served(measured[0]),
            "machines": {
                machine.name: {"contended_rps": round(each.contended_rps, 2)}
                for machine, each in zip(site.machines, measured, strict=True)
            },
            "rounds": [
                {**_served(each.served[0]), "rate_per_s": round(each.rate_per_s, 2)}
                for each in rounds
            ],
        },
        "generator_kept_up": late_ms <= report.LATE_MS,
        "policies": policies,
        "ratios": report.ratios(blocks, request.percentile, request.seed),
    }


def _served(victim: Calibration) -> dict[str, float]:
    return {
        "peak_rps": round(victim.quiet_rps, 2),
        "contended_rps": round(victim.contended_rps, 2),
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
