"""Samples between their arrival and the tick that takes them.

Agents post when they like and the runtime ticks when it likes, so something must hold
what arrived in between.  That something must be bounded (an agent may post faster than
the controller ticks), must not be fooled by age (an hour-old sample describes another
world), and must notice two agents that claim the same backend: their samples, mixed,
would describe a VM that does not exist.

A batch is checked whole before anything changes.  One event loop calls all methods;
there is no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from dial.errors import IntakeError
from dial.intake.samples import SampleBatch, refused
from dial.types import AgentSample

MAX_AGE_S = 60.0
"""Six of the paper's 10 s intervals: older samples explain nothing that is seen now."""

MAX_FUTURE_S = 5.0
"""A VM's clock without NTP drifts a second a day or so; beyond this it is wrong."""

MAX_PENDING = 600
"""Samples kept per backend until a tick: ten minutes at 1 Hz, the longest tick in use."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one batch that was not refused, in samples.

    ``accepted + duplicates`` is the length of the batch; ``superseded`` and ``evicted``
    count samples of earlier batches.
    """

    accepted: int
    duplicates: int
    """Not newer than the newest sample already had of the backend (a retried post)."""
    superseded: int
    """Pending samples of another agent of the same backend that were thrown away."""
    evicted: int
    """Oldest pending samples thrown away because no tick took them in time."""
    unknown_metrics: int
    agent_changed: bool
    """Another agent spoke for the backend until now: a restart, or a second agent."""


@dataclass(slots=True)
class _Pending:
    agent: str = ""
    newest_s: float = float("-inf")
    samples: deque[AgentSample] = field(default_factory=deque)


class SampleInbox:
    """Pending samples by backend, bounded.

    Parameters
    ----------
    max_pending
        Samples kept per backend; the oldest make room for newer ones.
    """

    def __init__(self, max_pending: int = MAX_PENDING) -> None:
        self._max_pending = max_pending
        self._pending: dict[str, _Pending] | None = None

    def set_backends(self, names: Collection[str]) -> None:
        """Take samples for these backends from now on; what is held of others is dropped."""
        before = self._pending or {}
        self._pending = {name: before.get(name) or _Pending() for name in names}

    def offer(self, batch: SampleBatch, now_s: float) -> Receipt:
        """Take a batch, or refuse it whole and change nothing.

        Raises
        ------
        IntakeError
            If no reading of the balancer has said which backends there are
            (``not_ready``), if this one is not among them (``unknown_backend``), or if
            any sample is too old (``stale``) or too new (``future``) by the
            controller's clock ``now_s``.
        """
        pending = self._find(batch.backend)
        for index, sample in enumerate(batch.samples):
            _check_age(batch.backend, index, sample.at_s, now_s)

        if pending.newest_s > now_s + MAX_FUTURE_S:
            # The controller's clock was set back.  Without this, every sample would count
            # as a duplicate until the clock has caught up with where it once was.
            pending.newest_s = float("-inf")
        fresh: list[AgentSample] = []
        newest_s = pending.newest_s
        for sample in batch.samples:
            if sample.at_s > newest_s:
                newest_s = sample.at_s
                fresh.append(sample)
        changed = bool(fresh) and pending.agent not in ("", batch.agent)
        superseded = len(pending.samples) if changed else 0
        if changed:
            pending.samples.clear()
        if fresh:
            pending.agent = batch.agent
        pending.newest_s = newest_s
        pending.samples.extend(fresh)
        evicted = max(0, len(pending.samples) - self._max_pending)
        for _ in range(evicted):
            pending.samples.popleft()
        return Receipt(
            accepted=len(fresh),
            duplicates=len(batch.samples) - len(fresh),
            superseded=superseded,
            evicted=evicted,
            unknown_metrics=batch.unknown_metrics,
            agent_changed=changed,
        )

    def take(self, now_s: float) -> dict[str, tuple[AgentSample, ...]]:
        """Hand over what is pending, oldest first, and keep nothing.

        Backends without samples are left out.  Samples that lie in the future of
        ``now_s`` (the clock was set back since they came) are dropped: they would
        belong to no tick.
        """
        taken = {}
        for name, pending in (self._pending or {}).items():
            samples = tuple(s for s in pending.samples if s.at_s <= now_s + MAX_FUTURE_S)
            pending.samples.clear()
            if samples:
                taken[name] = samples
        return taken

    def _find(self, backend: str) -> _Pending:
        if self._pending is None:
            raise IntakeError(
                "not_ready",
                "the load balancer has not been read yet, so its backends are not known; "
                "post again in a few seconds",
                "backend",
            )
        if backend not in self._pending:
            some = ", ".join(sorted(self._pending)[:10]) or "none"
            more = ", ..." if len(self._pending) > 10 else ""
            raise IntakeError(
                "unknown_backend",
                f"backend {backend!r}: the load balancer has no backend of that name; "
                f"it has: {some}{more}",
                "backend",
            )
        return self._pending[backend]


def _check_age(backend: str, index: int, at_s: float, now_s: float) -> None:
    age_s = now_s - at_s
    where = f"samples[{index}].at_s"
    if age_s > MAX_AGE_S:
        allowed = (
            f"{age_s:.0f} s old by the controller's clock, at most {MAX_AGE_S:g} s are allowed; "
            "if it is new, compare the clocks of VM and controller"
        )
        raise refused("stale", backend, where, at_s, allowed)
    if -age_s > MAX_FUTURE_S:
        allowed = (
            f"{-age_s:.0f} s in the future of the controller's clock, at most {MAX_FUTURE_S:g} s "
            "are allowed; compare the clocks of VM and controller"
        )
        raise refused("future", backend, where, at_s, allowed)
