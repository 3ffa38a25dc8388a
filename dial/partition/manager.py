"""Twice a second: how each service does, what moves, and the limits that follow.

:mod:`dial.limits.periodic` has the thread, and what happens when something goes wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dial.agent.files import Unavailable
from dial.limits.journal import Limits
from dial.limits.knobs import Knob, Resource
from dial.limits.limiter import Limiter
from dial.partition.egress import Egress
from dial.partition.groups import GroupUse
from dial.partition.latency import Source, Window
from dial.partition.parties import Decision, Reading, State, step
from dial.partition.resources import Machine
from dial.types import Measured, NoData

_log = logging.getLogger(__name__)

INTERVAL_S = 0.5
"""Between two decisions: the paper's, so that a percentile has enough requests (4.3)."""


@dataclass(frozen=True, slots=True)
class Managed:
    """One service: what is read of it, and what is set.

    Attributes
    ----------
    name
        Of the service.
    window
        Its latency; ``None`` for a best-effort job.
    source
        Where that comes from.
    use
        Of its cgroup.
    knobs
        By resource that is divided.
    balanced
        Whether the balancer's requests are for it.
    """

    name: str
    window: Window | None
    source: Source | None
    use: GroupUse
    knobs: Mapping[Resource, Knob]
    balanced: bool


class Manager:
    """Decides and writes.

    Parameters
    ----------
    machine
        What is divided, and among whom.
    unit_sizes
        How much one unit of each resource is: cores, bytes, bytes a second.
    state
        To begin with.
    services
        The same as the machine's.
    limits
        Which files may be written.
    limiter
        Writes them; ``None`` for a dry run, which says what it would do and writes nothing.
    egress
        Adjusts shares of a network device, if they are divided.
    monotonic_s
        A clock that never steps.
    draw
        Gives random numbers in [0, 1).
    """

    def __init__(
        self,
        machine: Machine,
        unit_sizes: Mapping[Resource, float],
        state: State,
        services: Sequence[Managed],
        limits: Limits,
        *,
        limiter: Limiter | None,
        egress: Egress | None,
        monotonic_s: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self._machine = machine
        self._unit_sizes = unit_sizes
        self._state = state
        self._services = services
        self._limits = limits
        self._limiter = limiter
        self._egress = egress
        self._monotonic_s = monotonic_s
        self._draw = draw
        self._applied: dict[tuple[str, Resource], int] = {}
        self._read_at_start: dict[str, int] = {}
        self._said = ""
        self._complained: set[str] = set()
        self._ended = False

    @property
    def state(self) -> State:
        """Of the last decision."""
        return self._state

    def missed_s(self) -> Measured:
        """For how long targets have been missed that partitioning could not meet.

        0 while no load has to go: all are met, or there still is hope.
        """
        if self._ended:
            return NoData("the partition has ended, see the agent's log")
        return self._state.missed_s

    @property
    def services(self) -> Sequence[Managed]:
        """All of them."""
        return self._services

    def begin(self) -> None:
        """Divide as the first state says; raises as :meth:`once`."""
        if self._limiter is not None:
            self._apply(self._limiter)

    def once(self) -> None:
        """Read, decide and write once.

        Raises
        ------
        LimitError
            If a limit cannot be written.
        """
        now_s = self._monotonic_s()
        readings = {service.name: self._reading(service, now_s) for service in self._services}
        decision = step(self._machine, self._state, readings, now_s, self._draw())
        if self._limiter is None:
            self._tell(decision)
            return
        if decision.moves:
            _log.info("partition: %s", decision.reason)
        if decision.state.relief and self._state.relief is None:
            _log.warning(
                "partition: targets are missed whatever is moved; the controller is asked to "
                "move load of %s away",
                decision.state.relief,
            )
        self._state = decision.state
        self._apply(self._limiter)
        if self._egress is not None:
            self._egress.adjust(INTERVAL_S)

    def put_back(self) -> None:
        """Put every limit back."""
        self._ended = True
        if self._limiter is not None:
            self._limiter.put_back()
        if self._egress is not None:
            self._egress.close()

    def _reading(self, service: Managed, now_s: float) -> Reading:
        latency_ms: Measured = NoData("a best-effort job has no target")
        if service.window is not None and service.source is not None:
            try:
                service.window.add(now_s, service.source.poll())
                latency_ms = service.window.latency_ms()
            except Unavailable as error:
                latency_ms = NoData(str(error))
                self._complain(f"{service.name}: {error}")
        return Reading(latency_ms, self._memory_slack(service), self._reads_disk(service))

    def _memory_slack(self, service: Managed) -> Measured:
        if Resource.MEMORY not in self._machine.totals:
            return NoData("memory is not divided")
        units = self._state.shares[service.name][Resource.MEMORY]
        try:
            return units * self._unit_sizes[Resource.MEMORY] - service.use.memory_bytes()
        except Unavailable as error:
            return NoData(str(error))

    def _reads_disk(self, service: Managed) -> bool:
        try:
            read = service.use.disk_read_bytes()
        except Unavailable:
            return False  # then its memory is protected as that of an in-memory service
        return read > self._read_at_start.setdefault(service.name, read)

    def _apply(self, limiter: Limiter) -> None:
        """Write the limits that differ, those that shrink first."""
        knobs = {service.name: service.knobs for service in self._services}
        wanted = {
            (name, resource): units
            for name, shares in self._state.shares.items()
            for resource, units in shares.items()
        }
        changed = [key for key, units in wanted.items() if self._applied.get(key) != units]
        changed.sort(key=lambda key: wanted[key] - self._applied.get(key, 0))
        for name, resource in changed:
            units = wanted[name, resource]
            if limiter.set(knobs[name][resource], units * self._unit_sizes[resource]):
                self._applied[name, resource] = units
            else:
                self._applied.pop((name, resource), None)
                self._complain(f"{name}: its cgroup has gone; its limits wait until it is back")

    def _tell(self, decision: Decision) -> None:
        """Say what would be done, once for each that is new; nothing is, so the state stays."""
        moved = ", ".join(
            f"1 unit of {move.resource} from {move.giver or 'idle'} to {move.taker or 'idle'}"
            for move in decision.moves
        )
        if moved == self._said:
            return
        self._said = moved
        _log.info("partition, dry run: %s; would move %s", decision.reason, moved or "nothing")
        after = replace(self._state, shares=decision.state.shares)
        for service in self._services:
            for resource, knob in service.knobs.items():
                for write in knob.writes(
                    after.shares[service.name][resource] * self._unit_sizes[resource]
                ):
                    self._limits.check(write)
                    _log.info("partition, dry run: would write %r to %s", write.text, write.path)

    def _complain(self, message: str) -> None:
        if message not in self._complained:
            self._complained.add(message)
            _log.warning("partition: %s", message)
