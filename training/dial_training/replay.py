"""A data set run through the product's own ``step``, case by case.

What is trained and what is measured must be what the product does, so nothing of it is
written anew here: the controller's step is folded over the observations, and verdicts and
learnt baselines are read from its state and its plans.

A case is judged from what was *learnt*, not from what happened before it:

    learnt state      step over the session's learning phase
    case              step over the case's own ticks, from the learnt state

so that cases are independent of each other, of their order and of the rests between them.
Plans are not applied (the shadow mode of the product): load stays even throughout.

The product knows its backends' peaks, as where ``peak_rps`` is configured: training measures them
before each session, and so can everybody who makes a load test.  Without one
(``load_tested=False``) it has them by the utilisation law: of the lab's CPU that gives a rho_fg a
fifth too high (an idle kernel works more for a request than a busy one), of its network one a
quarter too low (how busy a link is cannot be seen).

Where the lab put neighbours on several machines at once, to get as many cases out of one
run, a case sees its own machine and those without a neighbour.  A real controller that sees
most of its backends hit at once holds on purpose, and that is another experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dial.classifier import FEATURES, QuietBaseline, features_of
from dial.controller.policy import Policy, PolicySource
from dial.controller.state import State
from dial.controller.step import step
from dial.model import FORMAT, LeafDocument, ModelDocument
from dial.types import BackendObservation, Cause, Measured, NoData, Observation, Verdict
from dial_training.dataset import LEARN, Case, Session
from dial_training.tiers import PROBE, Tier


@dataclass(frozen=True, slots=True)
class JudgedTick:
    """One backend in one tick, and what the product held of it.

    Attributes
    ----------
    seen
        What there was to go by.
    interval_s
        Length of the tick.
    verdict
        The product's.
    baseline
        The quiet past that the tick was compared with, one row.
    engaged
        Whether the product moves load away from it.
    """

    seen: BackendObservation
    interval_s: float
    verdict: Verdict
    baseline: QuietBaseline
    engaged: bool

    @property
    def above(self) -> bool:
        """Whether T_x is above the detector's band: only then the tree is asked."""
        t_x_ms, upper_ms = self.seen.window.t_x_ms, self.verdict.expected_t_x_ms
        if isinstance(t_x_ms, NoData) or isinstance(upper_ms, NoData):
            return False
        return t_x_ms > upper_ms

    @property
    def features(self) -> dict[str, Measured]:
        """What the tree is shown.

        After a tick above the band the baseline is still the one before it, so these are
        the very values that the product's classifier gets.
        """
        seen = self.seen
        return features_of(self.baseline, seen.window, seen.sample, self.verdict.rho_fg)


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A case and what the product held of each of its ticks."""

    case: Case
    ticks: tuple[JudgedTick, ...]


@dataclass(frozen=True, slots=True)
class Studied:
    """One session in one tier: what was learnt, and every interval compared with that.

    Attributes
    ----------
    session
        The recording.
    tier
        The metrics that there were.
    load_tested
        Whether the product knows the backends' peaks.
    state
        Of the controller after the learning phase.
    quiet
        The learning phase by machine.
    cases
        Judged without a tree, which would stop comparing once it has named a neighbour.
    """

    session: Session
    tier: Tier
    load_tested: bool
    state: State
    quiet: dict[str, tuple[JudgedTick, ...]]
    cases: tuple[JudgedCase, ...]


def policy(model: ModelDocument, percentile: float) -> Policy:
    """The product as shipped, with ``model``: every setting at its default."""
    return Policy.of(PolicySource.shipped(model, percentile))


def blind(percentile: float) -> Policy:
    """The product without a tree: it never names a neighbour, and goes on comparing."""
    nothing = ModelDocument(
        format=FORMAT,
        name="none",
        card={},
        features=list(FEATURES),
        tree=LeafDocument(cause=Cause.NONE),
    )
    return policy(nothing, percentile)


def study(
    session: Session, percentile: float, tier: Tier = PROBE, *, load_tested: bool = True
) -> Studied:
    """Learn the quiet phase, then compare every interval of every case with it.

    No model has a part in it.  The lab knows that the learning phase is quiet, so a false
    alarm in it must not keep the controller from learning: there is no tree there either.
    """
    product = _informed(blind(percentile), session, load_tested=load_tested)
    machines = frozenset(session.quiet_rps)
    at = [
        index
        for index, tick in enumerate(session.ticks)
        if all(truth.phase == LEARN for truth in tick.truths.values())
    ]
    state, quiet = _fold(product, State(), _observations(session, at, machines, tier))
    cases = _judged(product, session, tier, state)
    return Studied(session, tier, load_tested, state, quiet, tuple(cases))


def judge_cases(product: Policy, studied: Studied) -> Iterator[JudgedCase]:
    """Every case of a session as the product judges it, each from the learnt state."""
    informed = _informed(product, studied.session, load_tested=studied.load_tested)
    return _judged(informed, studied.session, studied.tier, studied.state)


def judge_part(
    product: Policy, studied: Studied, case: Case, at: Sequence[int]
) -> tuple[JudgedTick, ...]:
    """Some ticks of one case as the product judges them, from the learnt state."""
    informed = _informed(product, studied.session, load_tested=studied.load_tested)
    observations = _observations(studied.session, at, _visible(case), studied.tier)
    return _fold(informed, studied.state, observations)[1][case.machine]


def _informed(product: Policy, session: Session, *, load_tested: bool) -> Policy:
    return replace(product, peak_rps=session.quiet_rps if load_tested else {})


def _judged(product: Policy, session: Session, tier: Tier, state: State) -> Iterator[JudgedCase]:
    shared: dict[tuple[int, frozenset[str]], dict[str, tuple[JudgedTick, ...]]] = {}
    for case in session.cases():
        visible = _visible(case)
        # Cases of a stage without any neighbour see the same: once is enough for all.
        key = (case.at[0], visible)
        if key not in shared:
            observations = _observations(session, case.at, visible, tier)
            shared[key] = _fold(product, state, observations)[1]
        yield JudgedCase(case, shared[key][case.machine])


def _visible(case: Case) -> frozenset[str]:
    """The case's machine, and those without a neighbour."""
    truths = case.session.ticks[case.at[0]].truths
    return frozenset(
        machine
        for machine, truth in truths.items()
        if machine == case.machine or not truth.label.costs_capacity
    )


def _observations(
    session: Session, at: Sequence[int], visible: frozenset[str], tier: Tier
) -> list[Observation]:
    found = []
    for index in at:
        observation = session.ticks[index].observation
        backends = tuple(tier.mask(b) for b in observation.backends if b.name in visible)
        found.append(replace(observation, backends=backends))
    return found


def _fold(
    product: Policy, state: State, observations: Sequence[Observation]
) -> tuple[State, dict[str, tuple[JudgedTick, ...]]]:
    ticks: dict[str, list[JudgedTick]] = {}
    for observation in observations:
        state, plan = step(product, state, observation)
        baseline = state.backends.known.baseline
        rows = enumerate(zip(observation.backends, plan.backends, strict=True))
        for row, (seen, planned) in rows:
            ticks.setdefault(seen.name, []).append(
                JudgedTick(
                    seen,
                    observation.interval_s,
                    planned.verdict,
                    baseline.take(np.array([row])),
                    engaged=seen.name in state.backends.contentions,
                )
            )
    return state, {name: tuple(found) for name, found in ticks.items()}
