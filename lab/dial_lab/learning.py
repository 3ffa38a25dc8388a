"""Before the first round: whoever learns does so in quiet times, and settings are tried."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from dial.errors import LabUnquiet
from dial_lab import report
from dial_lab.block import Site, run_block
from dial_lab.live import View
from dial_lab.patience import when_quiet
from dial_lab.policies import Policy
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult
from dial_lab.request import LEAST_QUIET_S, Request
from dial_lab.stolen import MOST_STOLEN, in_words
from dial_lab.undisturbed import undisturbed

_TRY_S = 15.0
"""Contended time in which a setting is tried."""

_DISTURBED_MS = 2 * report.LATE_MS
"""Lateness of the generator at P99 above which something else had the computer, and what was
learnt is no quiet past: with it in mind, a controller sees no neighbour in all of a run."""

_MOST_PART_OF_NEIGHBOUR = 1.0 / 3.0
"""Of what the victim needs more beside its neighbour, as calibrated in saturation, which it may
need where nobody was started and its set is left alone between requests: some lines of it are lost
to those who work beside it then.  Where 48 ns a load were quiet, whoever had learnt at 64 found the
neighbour in each of four blocks, and at 75, half of the way to 100 beside it, in three of nine; 57
to 67 were needed in a quiet minute."""


def learn(request: Request, site: Site, learnt: Path, directory: Path, view: View) -> None:
    """A quiet block for each policy that learns, of which nothing but its memory is kept.

    Raises
    ------
    LabUnquiet
        If something else had the computer in every try: with what was learnt then in mind, what a
        run finds says nothing of a controller.
    """
    alone = replace(site.scenario, visits=(), rate_factor=1.0, cost_factor=1.0, days=0)
    for policy in request.policies:
        if not policy.learns:
            continue
        quiet_s = max(LEAST_QUIET_S, policy.learns_s)
        quiet = replace(site, scenario=alone, phases=Phases(quiet_s, 0.0, 0.0), memory=learnt)
        directories = (directory / f"0-{policy.name}-{tried}" for tried in count(1))
        when_quiet(partial(_learn, quiet, policy, request.rounds, directories, view), view.note)


def _learn(
    site: Site, policy: Policy, stream: int, directories: Iterator[Path], view: View
) -> None:
    """One try, from nothing."""
    site.await_own_cores(view.note)
    view.note(f"{policy.name} learns for {site.phases.quiet_s:g} s")
    if site.memory is not None:
        shutil.rmtree(site.memory / policy.name, ignore_errors=True)
    disturbed = _disturbed(site, run_block(site, policy, stream, next(directories), view.show))
    if disturbed is not None:
        raise LabUnquiet(f"{disturbed}: something else had the computer")


def _disturbed(site: Site, block: BlockResult) -> str | None:
    """What shows that it was no quiet past, if anything does."""
    late_ms = report.lateness_ms(block.results)
    if late_ms > _DISTURBED_MS:
        return f"the generator was {late_ms:.0f} ms late"
    reaction = block.reaction
    if reaction is not None and reaction.load_moved:
        # A stranger in the cache, say: whoever learns beside one finds no neighbour afterwards.
        return f"{block.policy} moved load, and nobody had been started"
    if block.stolen > MOST_STOLEN:
        return in_words(block.stolen)
    slow = site.too_slow(block.slowdown)
    if slow is not None:
        return slow
    if block.apart is not None and block.apart.disturbed:
        # It expects requests to take as long as beside them, and sees no neighbour afterwards.
        return str(block.apart)
    return _beside_a_stranger(site, block)


def _beside_a_stranger(site: Site, block: BlockResult) -> str | None:
    """What shows that somebody took of the victim, of what others are at as well."""
    if site.scenario.resource.in_common is None or block.victim_cpu_s is None:
        return None
    # Load need not move: beside one from the first second, that is what is taken for normal.
    victim, cost = site.machines[0], site.scenario.resource.cost
    served = site.served[victim.name]
    alone_ns, contended_ns = (
        cost.unit_ns(rps, victim.capacity_cores) for rps in (served.quiet_rps, served.contended_rps)
    )
    at_most_ns = alone_ns + _MOST_PART_OF_NEIGHBOUR * (contended_ns - alone_ns)
    seconds = block.phases.end_s
    unit_ns = cost.unit_ns(_victims_requests(site, block) / seconds, block.victim_cpu_s / seconds)
    if unit_ns > at_most_ns:
        return (
            f"{victim.name} needed {unit_ns:.0f} ns of CPU time for one of its {cost.parameter}, "
            f"{at_most_ns:.0f} at most is quiet where it needs {alone_ns:.0f} alone and "
            f"{contended_ns:.0f} beside its neighbour"
        )
    return None


def _victims_requests(site: Site, block: BlockResult) -> int:
    """In the time in which its CPU time was counted."""
    results = block.results
    served = results.backend == results.names.index(site.machines[0].name)
    counted = (results.intended_s >= 0.0) & (results.intended_s < block.phases.end_s)
    return max(1, int((served & counted).sum()))


def tuned(request: Request, site: Site, policy: Policy, directory: Path, view: View) -> Policy:
    """The policy with the best of its candidate settings: a block each, with the same requests."""
    if not policy.candidates:
        return policy
    t_x_ms = {}
    brief = replace(site, phases=Phases(0.0, min(request.contended_s, _TRY_S), 0.0))
    for setting in policy.candidates:
        tried = replace(policy, setting=setting)
        where = directory / f"0-{policy.name}-{setting}"
        # A stream that no round has: what is tuned on the very requests fits their noise.
        stream = request.rounds + 1
        attempt = partial(run_block, brief, tried, stream, show=view.show)
        block = undisturbed(attempt, where, brief, view.note)
        latency_ms = report.together(report.pieces([block], "contended"))
        t_x_ms[setting] = report.percentile_ms(latency_ms, request.percentile) or math.inf
    best = min(t_x_ms, key=lambda setting: t_x_ms[setting])
    tried_ms = ", ".join(f"{setting} {ms:g} ms" for setting, ms in t_x_ms.items())
    view.note(f"{policy.name}: {best} is the best setting of {tried_ms}")
    return replace(policy, setting=best)


def as_tuned(policies: Sequence[Policy], settings: Mapping[str, str]) -> tuple[Policy, ...]:
    """The same with the settings that were found in an earlier sitting; nothing is tried anew."""
    return tuple(
        replace(policy, setting=settings[policy.name], candidates=())
        if policy.name in settings
        else policy
        for policy in policies
    )


def remembering(site: Site, policy: Policy, learnt: Path | None, where: Path) -> Site:
    """The site for one block, whose controller remembers what was learnt, and no other block."""
    if learnt is None or not policy.learns:
        return site
    own = where / "memory"
    shutil.copytree(learnt / policy.name, own / policy.name)
    return replace(site, memory=own)
