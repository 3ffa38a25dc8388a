"""Before the first round: whoever learns does so in quiet times, and settings are tried."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from dial_lab import report
from dial_lab.block import Site, run_block, run_undisturbed
from dial_lab.live import View
from dial_lab.policies import Policy
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult
from dial_lab.request import LEAST_QUIET_S, Request

_TRY_S = 15.0
"""Contended time in which a setting is tried."""

_LEARN_TRIES = 3
_DISTURBED_MS = 2 * report.LATE_MS
"""Lateness of the generator at P99 above which something else had the computer, and what was
learnt is no quiet past: with it in mind, a controller sees no neighbour in all of a run."""


def learn(request: Request, site: Site, learnt: Path, directory: Path, view: View) -> None:
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
            disturbed = _disturbed(run_block(quiet, policy, request.rounds, where, view.show))
            if disturbed is None:
                break
            view.note(f"{disturbed}: something else had the computer")


def _disturbed(block: BlockResult) -> str | None:
    """What shows that it was no quiet past, if anything does."""
    late_ms = report.lateness_ms(block.results)
    if late_ms > _DISTURBED_MS:
        return f"the generator was {late_ms:.0f} ms late"
    reaction = block.reaction
    if reaction is not None and reaction.load_moved:
        # A stranger in the cache, say: whoever learns beside one finds no neighbour afterwards.
        return f"{block.policy} moved load, and nobody had been started"
    return None


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
        block = run_undisturbed(attempt, where, view.note)
        latency_ms = report.together(report.pieces([block], "contended"))
        t_x_ms[setting] = report.percentile_ms(latency_ms, request.percentile) or math.inf
    best = min(t_x_ms, key=lambda setting: t_x_ms[setting])
    tried_ms = ", ".join(f"{setting} {ms:g} ms" for setting, ms in t_x_ms.items())
    view.note(f"{policy.name}: {best} is the best setting of {tried_ms}")
    return replace(policy, setting=best)


def remembering(site: Site, policy: Policy, learnt: Path | None, where: Path) -> Site:
    """The site for one block, whose controller remembers what was learnt, and no other block."""
    if learnt is None or not policy.learns:
        return site
    own = where / "memory"
    shutil.copytree(learnt / policy.name, own / policy.name)
    return replace(site, memory=own)
