"""A recording run through ``step`` again: the same observations must give the same plans.

Bit for bit on the same build and processor, because whatever can change a plan is in the
recording: policy, model, starting state, observations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dial.controller.policy import Policy
from dial.controller.recording import Recording, plan_json
from dial.controller.step import step


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A tick whose plan came out differently."""

    tick: int
    what: str
    """Name of the first field that differs."""
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Outcome of a replay."""

    ticks: int
    mismatches: tuple[Mismatch, ...]
    truncated: bool
    """The last line had been cut short, as after a crash, and was left out."""


def replay(path: Path, progress: Callable[[int], None] | None = None) -> ReplayResult:
    """Run a recording again.

    Parameters
    ----------
    path : of the recording.
    progress : called after each tick with the number of ticks so far.

    Raises
    ------
    RecordingError
        If the file is no recording, or a line other than the last is damaged.
    """
    recording = Recording(path)
    policy = Policy.of(recording.header.policy)
    state = recording.header.state
    ticks = 0
    mismatches: list[Mismatch] = []
    for recorded in recording.ticks():
        state, plan = step(policy, state, recorded.observation)
        ticks += 1
        if plan_json(plan) != plan_json(recorded.plan):
            what = next(
                name
                for name in type(plan).__slots__
                if repr(getattr(plan, name)) != repr(getattr(recorded.plan, name))
            )
            mismatches.append(
                Mismatch(
                    recorded.plan.tick,
                    what,
                    repr(getattr(recorded.plan, what)),
                    repr(getattr(plan, what)),
                )
            )
        if progress:
            progress(ticks)
    return ReplayResult(ticks, tuple(mismatches), recording.truncated)
