"""The rounds of a run that is done in several sittings: hours of it, a round at a time.

Problem: sixteen rounds of fourteen policies take two hours, and a stranger in this computer's cache
may end them after ten.  A round that is done is kept, and the next run goes on with the one after
it.  How many there are to be is decided before the first one and is kept beside them: who could
stop whenever the figures please would measure nothing.  Nor are rounds of different programs put
together.

On disk: ``plan.json`` and, by number, ``1/round.json`` with ``1/<policy>.npz``, the requests of
each policy.  A round is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from pydantic import TypeAdapter

import dial
import dial_lab
from dial.errors import LabError
from dial_lab.calibration import Calibration
from dial_lab.loadgen import Results
from dial_lab.one_cache import Apart
from dial_lab.reaction import Phases, Reaction
from dial_lab.report import BlockResult
from dial_lab.request import Request

_PROGRAM = (".py", ".json", ".lua")
"""Suffixes of what decides: code, models, and the rules inside HAProxy."""


@dataclass(frozen=True, slots=True)
class Round:
    """Every policy once."""

    served: Sequence[Calibration]
    """By machine, as measured right before it."""
    rate_per_s: float
    """Offered."""
    settings: Mapping[str, str]
    """Of the policies that have one, by name."""
    blocks: Mapping[str, BlockResult]
    """By policy."""
    took_s: float
    """With its calibration, and what was measured and learnt before the first of a sitting."""


def by_policy(rounds: Sequence[Round]) -> dict[str, list[BlockResult]]:
    """The blocks of each policy, by round."""
    return {name: [each.blocks[name] for each in rounds] for name in rounds[0].blocks}


def plan_of(request: Request) -> dict[str, Any]:
    """What all rounds have in common, decided before the first: what is asked, and by what."""
    asked = {field.name: getattr(request, field.name) for field in fields(request)}
    return {
        **asked,
        "scenario": request.scenario.name,
        "policies": [policy.name for policy in request.policies],
        "program": program(),
    }


def program() -> str:
    """SHA-256 over the controller's files and the lab's, in hex."""
    digest = hashlib.sha256()
    for package in (dial, dial_lab):
        root = str(files(package))
        found = (
            Path(where, name)
            # The shipped models are a link.
            for where, _, names in os.walk(root, followlinks=True)
            for name in names
            if name.endswith(_PROGRAM)
        )
        for path in sorted(found):
            digest.update(f"{package.__name__}/{path.relative_to(root)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Block:
    """A block without its requests."""

    phases: Phases
    reaction: Reaction | None
    apart: Apart | None
    victim_cpu_s: float | None
    stolen: float
    slowdown: float | None


@dataclass(frozen=True, slots=True)
class _Round:
    """A round without its requests."""

    served: tuple[Calibration, ...]
    rate_per_s: float
    settings: dict[str, str]
    blocks: dict[str, _Block]
    took_s: float


_ROUND = TypeAdapter(_Round)


class Kept:
    """Rounds of one run that are done, in a directory of their own.

    Parameters
    ----------
    directory
        Made with the first round.
    plan
        Of the rounds to come, as of :func:`plan_of`.

    Raises
    ------
    LabError
        If rounds of another plan are there, or what is there cannot be read.
    """

    def __init__(self, directory: Path, plan: Mapping[str, Any]) -> None:
        self._directory = directory
        self._plan = plan
        self.rounds: list[Round] = []
        """Those that are done, in their order."""
        there = directory / "plan.json"
        if not there.exists():
            return
        try:
            self._compare(json.loads(there.read_bytes()))
            while (directory / f"{len(self.rounds) + 1}").exists():
                self.rounds.append(_load(directory / f"{len(self.rounds) + 1}"))
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            raise LabError(f"{directory}: kept rounds cannot be read: {error}") from error

    def _compare(self, before: Mapping[str, Any]) -> None:
        for name, now in self._plan.items():
            was = before[name]
            if was != now:
                raise LabError(
                    f"{self._directory}: the rounds there are of another run ({name}: {was}, "
                    f"now {now}); allowed: to go on with the same, or to begin anew without them"
                )

    def add(self, done: Round) -> None:
        """Keep one more."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self.rounds:
            (self._directory / "plan.json").write_text(json.dumps(self._plan))
        partial = self._directory / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _save(partial, done)
        self.rounds.append(done)
        partial.rename(self._directory / f"{len(self.rounds)}")


def _save(directory: Path, done: Round) -> None:
    without = _Round(
        tuple(done.served),
        done.rate_per_s,
        dict(done.settings),
        {
            name: _Block(
                block.phases,
                block.reaction,
                block.apart,
                block.victim_cpu_s,
                block.stolen,
                block.slowdown,
            )
            for name, block in done.blocks.items()
        },
        done.took_s,
    )
    for name, block in done.blocks.items():
        block.results.save(directory / f"{name}.npz")
    (directory / "round.json").write_bytes(_ROUND.dump_json(without))


def _load(directory: Path) -> Round:
    kept = _ROUND.validate_json((directory / "round.json").read_bytes())
    blocks = {
        name: BlockResult(
            name,
            block.phases,
            Results.load(directory / f"{name}.npz"),
            block.reaction,
            block.apart,
            block.victim_cpu_s,
            block.stolen,
            block.slowdown,
        )
        for name, block in kept.blocks.items()
    }
    return Round(kept.served, kept.rate_per_s, kept.settings, blocks, kept.took_s)
