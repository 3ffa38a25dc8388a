"""An experiment's sessions: everything that is drawn, drawn before anything runs.

There is one session for each repeat, load and resource, with the stages of all groups in an
order drawn from the seed.  What a stage needs (machines, what their neighbours take, with which
program and how much of it, a change of the tenant's own load) is drawn as cards are dealt: each
once before any comes again, so that all come equally often, over all sessions they fit.

What is drawn depends on the experiment's content alone, and a session's id on its plan and the
lab's revision.  A run that was broken off therefore knows what is done, and a session that is
another now is recorded anew.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np

from dial.errors import LabError
from dial_lab.resources import RESOURCES, programs_for
from dial_lab.session import REVISION, Neighbour, SessionPlan, Stage
from dial_training.errors import ExperimentError
from dial_training.experiment import Experiment, StageGroup

MOST_USED = 0.95
"""Of rho_fg + rho_bg: Eq. 1 is singular at 1, where queues grow for as long as one looks."""

Card = TypeVar("Card")


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """One session of an experiment."""

    id: str
    """Says what it is, and ends in a digest of its plan."""
    set: str
    plan: SessionPlan


def expand(experiment: Experiment) -> list[SessionSpec]:
    """The sessions of an experiment: all resources and loads once, then the next repeat.

    Raises
    ------
    ExperimentError
        Naming the session and what cannot be: a name that the lab does not know, or a stage
        for which nothing is left to draw.
    """
    decks = Decks(experiment.seed)
    specs = []
    for repeat in range(1, experiment.repeats + 1):
        for rho_fg in experiment.loads:
            for resource in experiment.resources:
                kind = resource if experiment.guest == "shared" else experiment.guest
                name = f"{experiment.set}-{kind}-{round(100 * rho_fg):02d}-{repeat}"
                try:
                    plan = SessionPlan(
                        resource,
                        rho_fg,
                        _stages(experiment, decks, name, resource, rho_fg),
                        seed=zlib.crc32(f"{experiment.seed}/{name}".encode()),
                        learn_s=experiment.learn_s,
                        percentile=experiment.percentile,
                        guest=experiment.guest,
                    )
                except (LabError, ExperimentError) as error:
                    raise ExperimentError(f"{name}: {error}") from error
                specs.append(SessionSpec(f"{name}-{_digest(plan)}", experiment.set, plan))
    return specs


class Decks:
    """Decks of cards by name, each shuffled anew when all its cards have been dealt."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._decks: dict[str, tuple[np.random.Generator, list[int]]] = {}

    def deal(self, name: str, cards: Sequence[Card]) -> Card:
        """The next card of a deck, which has the same cards each time."""
        if name not in self._decks:
            random = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
            self._decks[name] = random, []
        random, left = self._decks[name]
        if not left:
            left.extend(int(i) for i in random.permutation(len(cards)))
        return cards[left.pop()]


def _stages(
    experiment: Experiment, decks: Decks, session: str, resource: str, rho_fg: float
) -> tuple[Stage, ...]:
    groups = [number for number, group in enumerate(experiment.stages) for _ in range(group.count)]
    order = [decks.deal(f"order/{session}", groups) for _ in groups]
    return tuple(
        _stage(experiment.stages[number], decks, f"{number}/{resource}", resource, rho_fg)
        for number in order
    )


def _stage(group: StageGroup, decks: Decks, name: str, resource: str, rho_fg: float) -> Stage:
    own = decks.deal(f"own/{name}", group.own_load)
    used = rho_fg * own.rate_factor * own.cost_factor
    possible = [rho_bg for rho_bg in group.rho_bg if used + rho_bg <= MOST_USED + 1e-9]
    if group.victims > len(group.machines):
        raise ExperimentError(f"{group.victims} victims of {len(group.machines)} machines")
    if group.victims and not possible:
        raise ExperimentError(
            f"rho_bg {list(group.rho_bg)}: none fits to a rho_fg of {used:g}; "
            f"their sum may be {MOST_USED:g} at most"
        )
    victims = decks.deal(f"victims/{name}", list(combinations(group.machines, group.victims)))
    neighbours = {}
    for machine in victims:
        takes = decks.deal(f"takes/{name}", group.neighbours or (resource,))
        if takes not in RESOURCES:
            raise ExperimentError(
                f"neighbours {takes}: there is none of that name; allowed: {', '.join(RESOURCES)}"
            )
        programs = programs_for(RESOURCES[takes], group.purpose)
        if not programs:
            raise ExperimentError(f"neighbours {takes}: no program for purpose {group.purpose}")
        program = decks.deal(f"program/{name}/{takes}", programs)
        rho_bg = decks.deal(f"rho_bg/{name}/{takes}/{possible}", possible)
        neighbours[machine] = Neighbour(takes, program, rho_bg)
    return Stage(
        group.seconds,
        group.rest_s,
        neighbours,
        rate_factor=own.rate_factor,
        cost_factor=own.cost_factor,
        calibrate=group.calibrate,
    )


def _digest(plan: SessionPlan) -> str:
    text = json.dumps([REVISION, asdict(plan)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
