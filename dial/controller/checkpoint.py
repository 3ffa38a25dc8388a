"""What the controller has learnt, kept for the one that is started after it.

Problem
    A controller that starts in mid-contention and knows nothing of the quiet past learns the
    contended times as quiet, and hands the load back.

Rule
    The state is kept beside the lease: when load begins to be shifted and in every tick from then
    on, before its weights are written, or as often as costs a hundredth of the time where the
    service is large (0.4 ms for three backends, 0.3 s for ten thousand); once a minute otherwise.
    A controller that starts takes it if it is of the same service, percentile and model, of this
    version, and not too old; what cannot be taken is one line in the log, and learning begins
    anew.

    Whether a *shift* is gone on with is for the balancer to say: only if all its weights are in
    force, or those that the lease names, which is written in every tick and may be newer.  If they
    are not, a watchdog, the admin or a restart of the balancer was there first, and the neighbour
    is found again from the quiet past, if it still is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

import dial
from dial.controller.state import Known, Shift, State, moves_load
from dial.handover import Kept
from dial.lease import Moment
from dial.settings import Settings, describe
from dial.types import BalancerState

QUIET_EVERY_S = 60.0
"""What a crash may cost: a minute of a quiet past that fades over five."""

COST = 0.01
"""Part of the controller's time that may go into writing while load is shifted."""

log = structlog.get_logger("dial.controller")


class _Checkpoint(BaseModel):
    model_config = ConfigDict(frozen=True)

    format: Literal[3] = 3
    dial: str
    service: str
    percentile: float
    model_checksum: str
    written: Moment
    tick: int
    state: State


class Checkpoints:
    """The document that holds the last state.

    Parameters
    ----------
    kept : the document.
    settings : of the controller.
    model_checksum : of its model.
    now : the time.
    """

    def __init__(
        self,
        kept: Kept,
        settings: Settings,
        model_checksum: str,
        now: Callable[[], Moment] = Moment.now,
    ) -> None:
        self._kept = kept
        self._resume_s = settings.lease.resume_s
        self._about = {
            "dial": dial.__version__,
            "service": settings.service,
            "percentile": settings.percentile,
            "model_checksum": model_checksum,
        }
        self._now = now
        self._written: Moment | None = None
        self._took_s = 0.0
        self._shifted = False

    def load(self) -> tuple[State, int]:
        """The last state and the number of its tick, or ``State(), 0`` where there is none.

        A state counts from its tick, so whoever goes on from it has to go on counting.
        """
        try:
            content = self._kept.read()
            if content is None:
                return State(), 0
            found = _Checkpoint.model_validate_json(content)
        except OSError as error:
            return self._anew(str(error.strerror))
        except ValidationError as error:
            # One field says enough; a damaged state is wrong in hundreds.
            return self._anew(f"cannot be read: {describe(error)[:200]}")
        for name, wanted in self._about.items():
            if (there := getattr(found, name)) != wanted:
                return self._anew(f"{name} was {there!r} and is {wanted!r}")
        age_s = found.written.age_s(self._now())
        if age_s > self._resume_s:
            return self._anew(f"{age_s:.0f} s old, at most lease.resume_s = {self._resume_s:g}")
        log.info("goes on from what was learnt", path=str(self._kept), age_s=round(age_s, 1))
        return found.state, found.tick

    def keep(self, state: State, tick: int) -> None:
        """Write what ``tick`` left, if it is time to.

        That is sooner while load is moved for a neighbour's sake: who goes on without knowing of
        it would give the victim its load back.  Who is taken last is learnt again at no such cost.
        """
        shifted = moves_load(state.shift)
        every_s = self._took_s / COST if shifted else QUIET_EVERY_S
        begins = shifted and not self._shifted
        if begins or self._written is None or self._written.age_s(self._now()) >= every_s:
            self.write(state, tick)

    def write(self, state: State, tick: int) -> None:
        """Write what ``tick`` left; a disk that is full costs the past, never the control."""
        self._written, self._shifted = self._now(), moves_load(state.shift)
        begin_s = time.perf_counter()
        content = _Checkpoint(written=self._written, tick=tick, state=state, **self._about)
        try:
            self._kept.write(content.model_dump_json().encode())
        except OSError as error:
            log.warning("checkpoint not written", path=str(self._kept), error=error.strerror)
        self._took_s = time.perf_counter() - begin_s

    def _anew(self, why: str) -> tuple[State, int]:
        log.warning("learns anew", path=str(self._kept), why=why)
        return State(), 0


def in_force(shift: Shift, balancer: BalancerState) -> bool:
    """Whether the balancer has all the weights that are wanted of it."""
    return all(
        server.weight == shift.weights.get(server.name, server.weight)
        for server in balancer.servers
        if server.usable
    )


def as_in_force(state: State, shift: Shift, balancer: BalancerState) -> State:
    """A state whose shift is that of the weights in force, which are newer than it."""
    now = {server.name: server.weight for server in balancer.servers}
    newer = {name: now.get(name, weight) for name, weight in shift.weights.items()}
    return replace(state, shift=replace(shift, weights=newer, arrived=False), in_force=now)


def without_shift(state: State) -> State:
    """What was learnt in quiet times, with nobody suspected of anything."""
    known = state.backends.known
    blank = Known.blank(len(state.backends.names))
    everybody = np.ones(len(state.backends.names), np.bool_)
    quiet = known.but(
        band=known.band.but(held_back_ms=blank.band.held_back_ms),
        cusum=known.cusum.calmed(everybody),
        rates=known.rates.calmed(everybody),
        history=blank.history,
        uneasy_intervals=blank.uneasy_intervals,
    )
    backends = replace(state.backends, known=quiet, contentions={}, suspects={})
    return replace(state, backends=backends, shift=None)
