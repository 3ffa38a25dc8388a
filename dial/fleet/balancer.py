"""All readers of a service as one load balancer: an :class:`~dial.adapter.Adapter` over NATS.

``read`` and ``requests`` give what the readers have published; ``apply`` writes a plan that they
watch, and waits for what they say became of it.  A controller that uses it need not know.

Memory is bounded: of each reader the newest state is held, of the requests what
:class:`~dial.logs.stream.BatchQueue` allows, the oldest dropped first and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from dial import subjects
from dial.adapter import Finding, RequestBatch, Severity
from dial.clock import Clock
from dial.errors import BalancerUnreachable, Deposed, IntakeError
from dial.fleet.fenced import FencedKey
from dial.fleet.link import Link
from dial.fleet.merge import merged
from dial.fleet.plans import Applied, PlanDocument
from dial.fleet.sketch import as_batch
from dial.fleet.windows import WindowPart, decode
from dial.logs.stream import BatchQueue
from dial.settings import Settings
from dial.types import ApplyReport, BalancerState, ServerState

MAX_READERS = 64
"""Of one service: more than have ever shared a pool, and a bound for who sends garbage."""

SILENT_INTERVALS = 5.0
"""After so many without a window a reader counts as gone, its balancer with it."""

MAX_QUEUED_REQUESTS = 10_000_000

_ANSWER_INTERVALS = 0.5
"""How long a tick waits for readers: for windows that are about to come, and for their answers to a
plan."""


@dataclass(slots=True)
class _Seen:
    """What is known of one reader."""

    life: float = 0.0
    seq: int = -1
    parts: dict[int, WindowPart] = field(default_factory=dict)
    state: BalancerState | None = None
    at_s: float = 0.0
    fresh: bool = False
    """Whether it has come since the last tick."""


class FleetBalancer:
    """The adapter of a controller in a fleet.

    Parameters
    ----------
    link : to the servers.
    settings : service and interval.
    clock : of which monotonic time tells who is silent.

    Attributes
    ----------
    before_plans
        Awaited before a plan is written: what must not be behind it.
    """

    name = "fleet"

    def __init__(self, link: Link, settings: Settings, clock: Clock) -> None:
        self.events = link.events
        self.before_plans: Callable[[], Awaitable[None]] | None = None
        self._link = link
        self._service = settings.service
        self._interval_s = settings.interval_s
        self._clock = clock
        self._readers: dict[str, _Seen] = {}
        self._came = asyncio.Event()
        self._queue: BatchQueue | None = None
        self._plan: FencedKey | None = None
        self._term = 0
        self._wanted: dict[str, int] = {}
        self._answers: dict[str, Applied] = {}
        self._unsubscribe: list[Callable[[], Awaitable[None]]] = []

    async def listen(self) -> None:
        """Take what readers publish, from now on; standing by, so that a leader is not blind."""
        of = self._service
        subscribe = self._link.subscribe
        self._unsubscribe = [
            await subscribe(subjects.all_windows(of), self._take_window),
            await subscribe(subjects.all_applied(of), self._take_answer),
        ]

    async def lead(self, term: int) -> None:
        """Own the plan from now on, and go on from the one that is there.

        Raises
        ------
        BalancerError
            If the store does not answer, or somebody else takes it.
        """
        plan = FencedKey(self._link.documents, f"{subjects.token(self._service)}.plan")
        content = await plan.take()
        try:
            found = PlanDocument.model_validate_json(content) if content else None
        except ValidationError:
            found = None
        self._wanted = found.weights if found else {}
        self._term, self._plan = term, plan

    def follow(self) -> None:
        """Write no plans any more."""
        self._plan = None

    async def read(self) -> BalancerState:
        """What the readers have last seen, merged; waits a moment for those that are due."""
        try:
            async with asyncio.timeout(_ANSWER_INTERVALS * self._interval_s):
                while not self._all_fresh():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            self.events["fleet_windows_late"] += 1
        live = self._live()
        for seen in live.values():
            seen.fresh = False
        if not live:
            raise BalancerUnreachable(
                f"fleet: no reader of service {self._service!r} has been heard for "
                f"{SILENT_INTERVALS * self._interval_s:g} s; dial reader runs beside each balancer"
            )
        states = [(n, seen.state) for n, seen in sorted(live.items()) if seen.state is not None]
        return merged(states, self._wanted)

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        """Write the plan, and wait for what became of it at each balancer."""
        if self._plan is None:
            raise Deposed("fleet: this controller does not lead")
        if self.before_plans is not None:
            await self.before_plans()
        live = self._live()
        configured = _configured(live)
        kept = {n: w for n, w in self._wanted.items() if w != configured.get(n, w)}
        document = PlanDocument(
            service=self._service,
            term=self._term,
            leader=self._link.name,
            at_s=self._clock.now_s(),
            weights=kept | dict(weights),
        )
        self._answers.clear()
        await self._plan.put(document.model_dump_json().encode())
        self._wanted = document.weights
        revision = self._plan.revision
        try:
            async with asyncio.timeout(_ANSWER_INTERVALS * self._interval_s):
                while not live.keys() <= self._answered(revision).keys():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            pass
        return self._report(weights, version, self._answered(revision), set(live))

    async def requests(self) -> AsyncGenerator[RequestBatch, None]:
        """The requests that windows stand for, as they come."""
        queue = self._queue = BatchQueue(MAX_QUEUED_REQUESTS)
        try:
            while (batch := await queue.get()) is not None:
                yield batch
        finally:
            self._queue = None

    async def check(self) -> tuple[Finding, ...]:
        """Who has been heard."""
        live = self._live()
        heard = ", ".join(sorted(live)) or "none"
        severity = Severity.OK if live else Severity.ERROR
        return (Finding(severity, f"readers heard: {heard}"),)

    async def aclose(self) -> None:
        """Listen no more."""
        for unsubscribe in self._unsubscribe:
            await unsubscribe()
        self._unsubscribe = []
        if self._queue is not None:
            self._queue.close()

    # ------------------------------------------------------------ what comes in

    def _take_window(self, content: bytes) -> None:
        try:
            part = decode(content)
        except IntakeError:
            self.events["fleet_windows_refused"] += 1
            return
        if part.reader not in self._readers and len(self._readers) >= MAX_READERS:
            self._forget_silent()
            if len(self._readers) >= MAX_READERS:
                self.events["fleet_windows_refused"] += 1
                return
        seen = self._readers.setdefault(part.reader, _Seen())
        if (part.life, part.seq) != (seen.life, seen.seq):
            if part.life == seen.life:
                self.events["fleet_windows_lost"] += max(0, part.seq - seen.seq - 1)
            seen.life, seen.seq, seen.parts = part.life, part.seq, {}
        seen.parts[part.part] = part
        if self._queue is not None:
            names = tuple(server.name for server in part.balancer.servers)
            batch = as_batch(names, part.windows)
            lines = part.lines
            self._queue.put(
                replace(
                    batch,
                    malformed=lines.malformed,
                    unattributed=lines.unattributed,
                    dropped=lines.dropped,
                )
            )
        if len(seen.parts) == part.parts:
            servers: tuple[ServerState, ...] = ()
            for number in sorted(seen.parts):
                servers += seen.parts[number].balancer.servers
            seen.state = replace(part.balancer, servers=servers)
            seen.parts = {}
            seen.at_s, seen.fresh = self._clock.monotonic_s(), True
            self._came.set()

    def _take_answer(self, content: bytes) -> None:
        try:
            answer = Applied.model_validate_json(content)
        except ValidationError:
            self.events["fleet_answers_refused"] += 1
            return
        seen = self._readers.get(answer.reader)
        if seen is None:
            return
        if seen.state is not None:
            # Who begins to lead before the next window is not to think that they were put back.
            seen.state = _with_weights(seen.state, answer.in_effect)
        self._answers[answer.reader] = answer
        self._came.set()

    def _forget_silent(self) -> None:
        live = self._live()
        self._readers = {name: seen for name, seen in self._readers.items() if name in live}

    def _live(self) -> dict[str, _Seen]:
        since_s = self._clock.monotonic_s() - SILENT_INTERVALS * self._interval_s
        return {
            name: seen
            for name, seen in self._readers.items()
            if seen.state is not None and seen.at_s >= since_s
        }

    def _all_fresh(self) -> bool:
        live = self._live()
        return bool(live) and all(seen.fresh for seen in live.values())

    # ------------------------------------------------------------ what became of a plan

    def _answered(self, revision: int) -> dict[str, Applied]:
        return {n: answer for n, answer in self._answers.items() if answer.revision >= revision}

    def _report(
        self,
        weights: Mapping[str, int],
        version: int,
        answers: Mapping[str, Applied],
        asked: set[str],
    ) -> ApplyReport:
        in_effect: dict[str, int] = {}
        failures: dict[str, str] = {}
        for reader, answer in sorted(answers.items()):
            for name, why in answer.failures.items():
                if name in weights:
                    failures[name] = f"{reader}: {why}"
            for name, weight in answer.in_effect.items():
                # Of two balancers that differ the one that has not what is wanted is shown.
                if name in weights and in_effect.get(name, weights[name]) == weights[name]:
                    in_effect[name] = weight
        if silent := asked - answers.keys():
            self.events["fleet_plans_unanswered"] += 1
            for name in weights:
                failures.setdefault(name, f"no answer from {', '.join(sorted(silent))}")
        return ApplyReport(
            version=version,
            at_s=self._clock.now_s(),
            wanted=tuple(weights.items()),
            in_effect=tuple((name, in_effect[name]) for name in weights if name in in_effect),
            failures=tuple(failures.items()),
        )


def _with_weights(state: BalancerState, weights: Mapping[str, int]) -> BalancerState:
    servers = (
        server
        if weights.get(server.name, server.weight) == server.weight
        else replace(server, weight=weights[server.name])
        for server in state.servers
    )
    return replace(state, servers=tuple(servers))


def _configured(live: Mapping[str, _Seen]) -> dict[str, int]:
    return {
        server.name: server.configured_weight
        for seen in live.values()
        if seen.state is not None
        for server in seen.state.servers
    }
