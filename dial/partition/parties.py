"""PARTIES' Algorithms 1 to 4: one decision every half second, as a pure step.

Problem
    Several services with latency targets share a VM, perhaps with a best-effort job.  Divide
    cores, cache, frequency, memory and disk so that all meet their targets, without a profile
    of any, and recover fast from what turns out wrong.

Formula
    slack = (target - latency) / target.  Every 500 ms:

    1. If the smallest slack is under 5 %, *upsize*: one unit of one resource goes to that
       service, from idle units, else from best-effort jobs, else from the victim: for memory
       who has most of it to spare, for all else who has most slack.  If latency did not fall,
       the service's next resource is another one (:mod:`~dial.partition.wheels`).
    2. Else, if the largest slack is over 20 %, *downsize*: one unit goes from that service to a
       best-effort job.  If its slack is under 5 % at the next look, the unit returns, the next
       resource is another one, and the service is not downsized for 30 s.
    3. If targets have been missed for a minute on end, ask for load to be moved away: from a
       stateless service, else from the one with the most relaxed target.

Regimes
    room for all
        Who misses its target is upsized a unit every half second until it does not.
    a best-effort job
        It has what is left when all targets are met with 20 % to spare.
    more wanted than there is
        Nobody has slack to give, nothing moves, and after a minute load has to go.
    no reading
        A service whose latency is not known is let alone.  One that missed its target when it
        was last heard of still misses it: what is starved of everything completes nothing.

Source
    Chen, Delimitrou, Martinez, ASPLOS 2019, Algorithms 1 to 4 and 4.3; thresholds and times are
    the paper's.

Departures
    * The look that judges an action is also the next decision's, so that there is one
      decision an interval and not one in two.
    * A victim has at least 5 % of slack itself, so that what one unit mends it does not break.
    * Without a best-effort job nothing is reclaimed: idle cycles save a tenant no power.
    * The last resort is not a migration but a request to the controller; it ends when all
      targets have been met, with slack, for a minute, because load that returns at the first
      good second would make it oscillate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dial.limits.knobs import Resource
from dial.partition.resources import Machine, Service, Units, fair, idle
from dial.partition.wheels import Action, Direction, next_action
from dial.types import Measured, NoData

UPSIZE_SLACK = 0.05
DOWNSIZE_SLACK = 0.20
NO_DOWNSIZE_S = 30.0
MIGRATE_AFTER_S = 60.0
"""All four by the paper's sensitivity study (4.3)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one service did in the last interval.

    Attributes
    ----------
    latency_ms
        The percentile of its latency that its target is for.
    memory_slack_bytes
        Its memory limit less its use.
    reads_disk
        Whether it has read from a disk.  One that never has keeps its data in memory.
    """

    latency_ms: Measured
    memory_slack_bytes: Measured
    reads_disk: bool


@dataclass(frozen=True, slots=True)
class Move:
    """One unit of a resource changes hands; ``None`` stands for idle units."""

    resource: Resource
    giver: str | None
    taker: str | None


@dataclass(frozen=True, slots=True)
class Trial:
    """The last action, which the next look judges."""

    service: str
    direction: Direction
    move: Move
    latency_ms: float


@dataclass(frozen=True, slots=True)
class State:
    """What a decision needs of the ones before.

    Attributes
    ----------
    shares
        Units of each resource by service.
    actions
        Last action by service.
    latencies_ms
        Last latency known by service.
    disk_readers
        Services that have read from a disk.
    no_downsize_until_s
        By service, after a downsizing that had to be reverted.
    trial
        See :class:`Trial`.
    missed_since_s
        Since when some target has been missed.
    comfortable_since_s
        Since when all have been met with slack.
    relief
        The service whose load should move away.
    missed_s
        For how long targets have been missed since that minute began, while load should move;
        what has moved is judged by whether it still grows.
    looked_s
        When this decision was made.
    """

    shares: Mapping[str, Units]
    actions: Mapping[str, Action] = field(default_factory=dict)
    latencies_ms: Mapping[str, float] = field(default_factory=dict)
    disk_readers: frozenset[str] = frozenset()
    no_downsize_until_s: Mapping[str, float] = field(default_factory=dict)
    trial: Trial | None = None
    missed_since_s: float | None = None
    comfortable_since_s: float | None = None
    relief: str | None = None
    missed_s: float = 0.0
    looked_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What one step says: what moves, and why in a line."""

    state: State
    moves: tuple[Move, ...]
    reason: str


def start(machine: Machine, in_use: Mapping[str, Units] | None = None) -> State:
    """Return the state to begin with: everything divided; see :func:`~.resources.fair`."""
    return State(fair(machine, in_use))


def step(
    machine: Machine, state: State, readings: Mapping[str, Reading], now_s: float, draw: float
) -> Decision:
    """Decide once (Algorithm 1).

    Parameters
    ----------
    machine
        What is divided, and among whom.
    state
        Of the decision before.
    readings
        By service; every service has one.
    now_s
        A clock that never steps.
    draw
        A random number in [0, 1).
    """
    look = _Look(machine, _remembering(state, readings), readings, now_s, draw)
    slacks = look.slacks()
    state = look.state = _timed(machine, look.state, slacks, now_s)
    reverted = look.judge(slacks)
    if reverted is not None:
        return reverted
    if not slacks:
        return Decision(look.state, (), "no latency is known")
    smallest = min(slacks, key=lambda name: slacks[name])
    if slacks[smallest] < UPSIZE_SLACK:
        return look.upsize(smallest, slacks)
    return look.downsize(slacks)


def _remembering(state: State, readings: Mapping[str, Reading]) -> State:
    known = {
        name: reading.latency_ms
        for name, reading in readings.items()
        if not isinstance(reading.latency_ms, NoData)
    }
    return replace(
        state,
        latencies_ms={**state.latencies_ms, **known},
        disk_readers=state.disk_readers
        | {name for name, reading in readings.items() if reading.reads_disk},
    )


def _timed(machine: Machine, state: State, slacks: Mapping[str, float], now_s: float) -> State:
    """Keep the two timers of the last resort, and choose whose load it is."""
    missed = any(slack < 0.0 for slack in slacks.values())
    comfortable = bool(slacks) and min(slacks.values()) >= UPSIZE_SLACK
    missed_since_s = _since(state.missed_since_s, now_s) if missed else None
    comfortable_since_s = _since(state.comfortable_since_s, now_s) if comfortable else None
    relief, missed_s = state.relief, state.missed_s
    if relief is None:
        if missed_since_s is not None and now_s - missed_since_s >= MIGRATE_AFTER_S:
            relief, missed_s = _to_move(machine), now_s - missed_since_s
    elif comfortable_since_s is not None and now_s - comfortable_since_s >= MIGRATE_AFTER_S:
        relief, missed_s = None, 0.0
    elif missed:
        missed_s += now_s - state.looked_s
    return replace(
        state,
        missed_since_s=missed_since_s,
        comfortable_since_s=comfortable_since_s,
        relief=relief,
        missed_s=missed_s,
        looked_s=now_s,
    )


def _since(since_s: float | None, now_s: float) -> float:
    return now_s if since_s is None else since_s


def _to_move(machine: Machine) -> str:
    """Whose move costs least: stateless, and of the most relaxed target."""
    candidates = [service for service in machine.services if not service.best_effort]
    return max(candidates, key=lambda service: (service.stateless, service.target_ms or 0.0)).name


class _Look:
    """One decision in the making."""

    def __init__(
        self,
        machine: Machine,
        state: State,
        readings: Mapping[str, Reading],
        now_s: float,
        draw: float,
    ) -> None:
        self.machine = machine
        self.state = state
        self._readings = readings
        self._now_s = now_s
        self._draw = draw

    def slacks(self) -> dict[str, float]:
        """Slack by service, of those with a target and a latency that is known."""
        found = {}
        for service in self.machine.services:
            latency_ms = self._readings[service.name].latency_ms
            if service.target_ms is None:
                continue
            if isinstance(latency_ms, NoData):
                latency_ms = self.state.latencies_ms.get(service.name, 0.0)
                if latency_ms <= service.target_ms:
                    continue
            found[service.name] = (service.target_ms - latency_ms) / service.target_ms
        return found

    def judge(self, slacks: Mapping[str, float]) -> Decision | None:
        """Judge the last action; the decision is to take it back, if that is one."""
        trial, self.state = self.state.trial, replace(self.state, trial=None)
        if trial is None:
            return None
        if trial.direction is Direction.UP:
            if self.state.latencies_ms[trial.service] >= trial.latency_ms:
                self._turn(trial.service, Direction.UP)
            return None
        # Not known counts as missed: what was taken may be why nothing completes.
        if slacks.get(trial.service, 0.0) >= UPSIZE_SLACK:
            return None
        back = Move(trial.move.resource, trial.move.taker, trial.move.giver)
        self._take(back)
        self._turn(trial.service, Direction.DOWN)
        until_s = {**self.state.no_downsize_until_s, trial.service: self._now_s + NO_DOWNSIZE_S}
        self.state = replace(self.state, no_downsize_until_s=until_s)
        return Decision(
            self.state, (back,), f"{trial.service} needs its {back.resource}: it is given back"
        )

    def upsize(self, name: str, slacks: Mapping[str, float]) -> Decision:
        """Give the service one unit of something (Algorithms 2 and 4)."""
        action = self._action(name, Direction.UP, slacks)
        said = f"{name} has slack {slacks[name]:+.2f}"
        if action is None:
            return Decision(self.state, (), f"{said}; nobody has anything to give")
        giver = self._giver(name, action.resource, slacks)
        move = Move(action.resource, giver, name)
        self._take(move)
        # The victim must not ask for the same resource back (Algorithm 4).
        if giver is not None and giver in slacks:
            self._turn_from(giver, action)
        latency_ms = self.state.latencies_ms[name]
        trial = Trial(name, Direction.UP, move, latency_ms)
        self.state = replace(self.state, trial=trial)
        return Decision(
            self.state, (move,), f"{said}: {action.resource} from {giver or 'idle units'}"
        )

    def downsize(self, slacks: Mapping[str, float]) -> Decision:
        """Take one unit of something for a best-effort job (Algorithms 3 and 4)."""
        jobs = [service.name for service in self.machine.services if service.best_effort]
        if not jobs:
            return Decision(self.state, (), "all targets are met")
        for name in sorted(slacks, key=lambda name: -slacks[name]):
            if slacks[name] <= DOWNSIZE_SLACK:
                break
            if self._now_s < self.state.no_downsize_until_s.get(name, self._now_s):
                continue
            action = self._action(name, Direction.DOWN, slacks)
            if action is None:
                continue
            shares = self.state.shares
            job = min(jobs, key=lambda job: shares[job][action.resource])
            move = Move(action.resource, name, job)
            self._take(move)
            trial = Trial(name, Direction.DOWN, move, self.state.latencies_ms[name])
            self.state = replace(self.state, trial=trial)
            said = f"{name} has slack {slacks[name]:+.2f}: {action.resource} to {job}"
            return Decision(self.state, (move,), said)
        return Decision(self.state, (), "all targets are met; nothing to reclaim")

    def _action(
        self, name: str, direction: Direction, slacks: Mapping[str, float]
    ) -> Action | None:
        """The service's action in that direction, if need be another one than it has."""
        last = self.state.actions.get(name)
        if last and last.direction is direction and self._possible(name, last, slacks):
            return last
        return self._turn(name, direction, slacks)

    def _turn(
        self, name: str, direction: Direction, slacks: Mapping[str, float] | None = None
    ) -> Action | None:
        """Turn the service's wheel; what could not be moved now is passed over."""
        slacks = self.slacks() if slacks is None else slacks
        found = next_action(
            self.state.actions.get(name),
            direction,
            possible=lambda d, r: self._possible(name, Action(d, r, r), slacks),
            memory_slack=self._spare_bytes(name) > self.machine.memory_slack_bytes,
            draw=self._draw,
        )
        if found is not None:
            self.state = replace(self.state, actions={**self.state.actions, name: found})
        return found

    def _turn_from(self, name: str, action: Action) -> None:
        """Turn the wheel of a victim that would ask for the same.

        What it could get now does not matter: it asks when it has to, and then that is looked at.
        """
        theirs = self.state.actions.get(name)
        if theirs is None or not _same(theirs, action):
            return
        found = next_action(
            theirs,
            Direction.UP,
            possible=lambda _, resource: resource in self.machine.totals,
            memory_slack=self._spare_bytes(name) > self.machine.memory_slack_bytes,
            draw=self._draw,
        )
        if found is not None:
            self.state = replace(self.state, actions={**self.state.actions, name: found})

    def _possible(self, name: str, action: Action, slacks: Mapping[str, float]) -> bool:
        resource = action.resource
        if resource not in self.machine.totals:
            return False
        if action.direction is Direction.DOWN:
            return self._can_give(self.machine.service(name), resource)
        return idle(self.machine, self.state.shares)[resource] > 0 or (
            self._giver(name, resource, slacks) is not None
        )

    def _giver(self, name: str, resource: Resource, slacks: Mapping[str, float]) -> str | None:
        """Who gives a unit to ``name``; ``None`` if idle units do, or nobody can."""
        if idle(self.machine, self.state.shares)[resource] > 0:
            return None
        able = [
            service
            for service in self.machine.services
            if service.name != name and self._can_give(service, resource)
        ]
        jobs = [service.name for service in able if service.best_effort]
        if jobs:
            return max(jobs, key=lambda job: self.state.shares[job][resource])
        rest = [s.name for s in able if slacks.get(s.name, 0.0) >= UPSIZE_SLACK]
        if not rest:
            return None
        if resource is Resource.MEMORY:
            most = max(rest, key=self._spare_bytes)
            if self._spare_bytes(most) > self.machine.memory_slack_bytes:
                return most
        return max(rest, key=lambda other: slacks[other])

    def _can_give(self, service: Service, resource: Resource) -> bool:
        if self.state.shares[service.name][resource] <= service.floor(resource):
            return False
        if resource is not Resource.MEMORY or service.name in self.state.disk_readers:
            return True
        kept = self._spare_bytes(service.name) - self.machine.memory_unit_bytes
        return kept >= self.machine.memory_slack_bytes

    def _spare_bytes(self, name: str) -> float:
        """Memory that the service does not use; what is not known is not there to give."""
        spare = self._readings[name].memory_slack_bytes
        return 0.0 if isinstance(spare, NoData) else spare

    def _take(self, move: Move) -> None:
        shares = {name: dict(units) for name, units in self.state.shares.items()}
        if move.giver is not None:
            shares[move.giver][move.resource] -= 1
        if move.taker is not None:
            shares[move.taker][move.resource] += 1
        self.state = replace(self.state, shares=shares)


def _same(one: Action, other: Action) -> bool:
    return one.direction is other.direction and one.resource is other.resource
