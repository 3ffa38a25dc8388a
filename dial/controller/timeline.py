"""What happened, in order: the changes between snapshots, in words.

Snapshots are kept for minutes; in the morning one asks what happened at night.  So each snapshot
is compared with the one before it when it is published, and what a person would call an event is
kept: another action or reason, another cause of a backend, weights written, trouble, an order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dial.types import ApplyReport, Cause, Plan

if TYPE_CHECKING:
    from dial.controller.snapshot import Snapshot

MAX_EVENTS = 2_000
"""A neighbour that comes and goes every minute makes some three a minute: half a day of it."""


class EventKind(StrEnum):
    """What an event is about."""

    PLAN = "plan"
    VERDICT = "verdict"
    WEIGHTS = "weights"
    ORDER = "order"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    number: int
    """Counts from 1 since the controller's start."""
    at_s: float
    """Wall clock, seconds since the epoch."""
    kind: EventKind
    backend: str | None
    """Which one it is about, if about one."""
    text: str


class Timeline:
    """The last events, oldest first.

    Parameters
    ----------
    first : the snapshot before the first tick.
    """

    def __init__(self, first: Snapshot) -> None:
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._last = first
        self._plan: Plan | None = None
        self._report: ApplyReport | None = None
        self._count = 0

    def after(self, number: int, last: int = MAX_EVENTS) -> tuple[Event, ...]:
        """Events with a higher number, the ``last`` of them."""
        newer: list[Event] = []
        for event in reversed(self._events):
            if event.number <= number or len(newer) == last:
                break
            newer.append(event)
        return tuple(reversed(newer))

    def add(self, snapshot: Snapshot) -> None:
        """Compare with the snapshot before, and keep what has changed."""
        for kind, backend, text in self._changes(self._last, snapshot):
            self._count += 1
            self._events.append(Event(self._count, snapshot.at_s, kind, backend, text))
        self._last = snapshot
        self._plan = snapshot.plan or self._plan
        self._report = snapshot.report or self._report

    def _changes(
        self, before: Snapshot, now: Snapshot
    ) -> Iterator[tuple[EventKind, str | None, str]]:
        yield from _orders(before, now)
        if now.trouble != before.trouble:
            yield EventKind.TROUBLE, None, now.trouble or f"over: {before.trouble}"
        if now.plan is not None:
            yield from _decisions(self._plan, now.plan)
        if now.report is not None and now.report != self._report:
            failures = dict(now.report.failures)
            written = ", ".join(f"{name} {weight}" for name, weight in now.report.in_effect)
            if written:
                yield EventKind.WEIGHTS, None, f"weights in force: {written}"
            for name, said in failures.items():
                yield EventKind.WEIGHTS, name, f"weight not taken: {said}"


def _orders(before: Snapshot, now: Snapshot) -> Iterator[tuple[EventKind, str | None, str]]:
    if now.orders == before.orders:
        return
    if now.orders.frozen != before.orders.frozen:
        yield EventKind.ORDER, None, "frozen" if now.orders.frozen else "no longer frozen"
    was = {order.backend: order for order in before.orders.overrides}
    for order in now.orders.overrides:
        if was.pop(order.backend, None) != order:
            yield EventKind.ORDER, order.backend, f"weight {order.weight} by an operator"
    for name in was:
        yield EventKind.ORDER, name, "its weight is the controller's again"


def _decisions(before: Plan | None, now: Plan) -> Iterator[tuple[EventKind, str | None, str]]:
    was, held = _causes(before) if before else {}, _causes(now)
    changed = {name for name in was | held if was.get(name) is not held.get(name)}
    for row, name in enumerate(now.names if changed else ()):
        if name in changed:
            verdict = now.rows[row].verdict
            evidence = "; ".join(verdict.evidence)
            said = f"{verdict.cause}: {evidence}" if evidence else verdict.cause
            yield EventKind.VERDICT, name, said
    if before is None or (now.action, now.reason) != (before.action, before.reason):
        yield EventKind.PLAN, None, f"{now.action}: {now.reason}"


def _causes(plan: Plan) -> dict[str, Cause]:
    names = plan.names
    return {names[row]: cause for row, cause in plan.causes.items()}
