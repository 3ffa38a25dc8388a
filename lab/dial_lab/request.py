"""What is asked of a run, checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass

from dial.errors import LabError
from dial_lab.policies import Policy
from dial_lab.reaction import Phases
from dial_lab.resources import CPU
from dial_lab.scenarios import SCENARIOS, Scenario

MACHINES = ("s1", "s2", "s3")
"""The first one is the victim."""

APPS = ("lab", "apache")
"""What the tenant runs: the lab's own application, or one that nobody here wrote."""

GUESTS = ("shared", "uml")
"""Whose kernel a tenant runs under: the computer's, or one of its own."""

LEAST_QUIET_S, MOST_QUIET_S = 20.0, 120.0
"""Before and after the contended phase; a soak of half an hour need not wait ten minutes."""


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
