"""One scenario under one policy, from start to figures."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dial.controller.policy import Policy, PolicySource
from dial.controller.state import State
from dial.controller.step import step
from dial.model import STARTER, load_model
from dial.settings import Settings
from dial.types import Plan, WeightKind
from dial_sim.engine import (
    LEASTCONN,
    RANDOM_2,
    ROUND_ROBIN,
    World,
    advance,
    begin_interval,
    new_world,
    percentiles_ms,
    refused,
    reweigh,
)
from dial_sim.neighbours import Neighbourhood, Visit
from dial_sim.pool import Pool, names_of

POLICIES: dict[str, tuple[int, bool]] = {
    "roundrobin": (ROUND_ROBIN, False),
    "leastconn": (LEASTCONN, False),
    "random(2)": (RANDOM_2, False),
    "dial": (ROUND_ROBIN, True),
    "dial+leastconn": (LEASTCONN, True),
}
"""By name: the balancer's policy, and whether a controller sets weights."""

PERCENTILE = 90.0

REACTS_FROM = 0.4
"""Of neighbours that take as much, and stay for two intervals after the first, it is asked how soon
load leaves them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens, whoever balances.

    Attributes
    ----------
    servers, balancers
        How many.
    rate_per_server
        Requests a second, on average over time and servers.
    swing
        Load goes up and down by this part, in a wave of ``length_s``.
    work_s
        Mean work of a request, on a whole server.
    dear_part, dear_times
        The part of requests that are dearer than others, and how many times the mean they cost.
    quota, period_s
        Of a server's own time; 0 where it has none.
    length_s, interval_s
        Of the simulation, and of a tick.
    neighbourhood
        Who comes.
    seed
        Of all that is drawn.
    """

    servers: int
    balancers: int = 1
    rate_per_server: float = 5.0
    swing: float = 0.2
    work_s: float = 0.1
    dear_part: float = 0.0
    dear_times: float = 1.0
    quota: float = 0.0
    period_s: float = 0.0
    length_s: float = 3600.0
    interval_s: float = 10.0
    neighbourhood: Neighbourhood = field(default_factory=Neighbourhood)
    seed: int = 1

    def rate_per_s(self, at_s: float) -> float:
        """All requests that arrive a second."""
        wave = 1.0 - self.swing * math.cos(2.0 * math.pi * at_s / self.length_s)
        return self.servers * self.rate_per_server * wave


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a scenario under a policy.

    Attributes
    ----------
    requests
        Answered.
    p50_ms, p90_ms, p99_ms, p999_ms
        Of all of them, from the first one on.
    reaction_s
        Median time from a neighbour's coming to a tick that takes more than half of the even share
        away; ``None`` where no load moves.
    reacted
        Part of those neighbours that load was moved away from while they were there.
    moved_for_nothing
        Part of the (server, tick) without a neighbour, now or within five ticks, in which a server
        had less than half of the even share.
    weights_written
        In all.
    wall_s, step_s, tick_ms
        Time that it took: all, the controller's part, and the median of its ticks.
    refused
        Requests that found no room in the simulation; none, or the figures mean nothing.
    """

    requests: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    reaction_s: float | None
    reacted: float | None
    moved_for_nothing: float
    weights_written: int
    wall_s: float
    step_s: float
    tick_ms: float | None
    refused: int


def simulate(scenario: Scenario, policy: str) -> Outcome:
    """Run a scenario from start to end.

    Raises
    ------
    KeyError
        If there is no policy of that name.
    """
    begin_s = time.perf_counter()
    balancing, steered = POLICIES[policy]
    visits = scenario.neighbourhood.draw(scenario.servers, scenario.length_s, scenario.seed)
    mean = scenario.rate_per_server * scenario.interval_s * (1.0 + scenario.swing)
    world = new_world(
        scenario.servers,
        balancers=scenario.balancers,
        seed=scenario.seed,
        kept=int(8 * mean) + 64,
        dear_part=scenario.dear_part,
        dear_times=scenario.dear_times,
    )
    controller = _Controller(scenario, balancing) if steered else None
    shares: list[NDArray[np.float64]] = []
    coming = 0
    ticks = round(scenario.length_s / scenario.interval_s)
    for tick in range(ticks):
        from_s, until_s = tick * scenario.interval_s, (tick + 1) * scenario.interval_s
        while coming < len(visits) and visits[coming].from_s < until_s:
            _let_in(world, visits[coming])
            coming += 1
        begin_interval(world)
        advance(
            world,
            balancing,
            until_s,
            scenario.rate_per_s(from_s + scenario.interval_s / 2),
            scenario.work_s,
            scenario.quota,
            scenario.period_s,
        )
        if controller is not None:
            controller.tick(world, until_s)
            shares.append(controller.shares())
    p50_ms, p90_ms, p99_ms, p999_ms = percentiles_ms(world.histogram, 50.0, 90.0, 99.0, 99.9)
    reaction_s, reacted = _reactions(scenario, visits, shares) if steered else (None, None)
    return Outcome(
        requests=int(world.histogram.sum()),
        p50_ms=p50_ms,
        p90_ms=p90_ms,
        p99_ms=p99_ms,
        p999_ms=p999_ms,
        reaction_s=reaction_s,
        reacted=reacted,
        moved_for_nothing=_moved_for_nothing(scenario, visits, shares),
        weights_written=controller.written if controller else 0,
        wall_s=time.perf_counter() - begin_s,
        step_s=sum(controller.took_s) if controller else 0.0,
        tick_ms=1e3 * float(np.median(controller.took_s)) if controller else None,
        refused=refused(world),
    )


def _let_in(world: World, visit: Visit) -> None:
    world.from_s[visit.server] = visit.from_s
    world.until_s[visit.server] = visit.until_s
    world.left[visit.server] = 1.0 - visit.rho_bg


class _Controller:
    """The product's step, tick after tick."""

    def __init__(self, scenario: Scenario, balancing: int) -> None:
        names = names_of(scenario.servers)
        peak_rps = (scenario.quota or 1.0) / scenario.work_s
        settings = Settings(
            service="simulated",
            adapter={"name": "simulated"},
            interval_s=scenario.interval_s,
            percentile=PERCENTILE,
            backends={name: {"peak_rps": peak_rps} for name in names},
        )
        self._policy = Policy.of(PolicySource.of(settings, load_model(STARTER)))
        self._balancing = balancing
        self._interval_s = scenario.interval_s
        kind = WeightKind.CONCURRENCY if balancing == LEASTCONN else WeightKind.REQUESTS
        self.pool = Pool(
            scenario.servers,
            scenario.balancers,
            kind,
            settings=settings,
            model_checksum=self._policy.model_checksum,
        )
        self._state = State()
        self.plan: Plan | None = None
        self.written = 0
        self.took_s: list[float] = []

    def tick(self, world: World, now_s: float) -> None:
        begin_s = time.perf_counter()
        observation = self.pool.observe(world, now_s, self._interval_s)
        self._state, self.plan = step(self._policy, self._state, observation)
        changes = self.plan.changes
        self.took_s.append(time.perf_counter() - begin_s)
        if changes:
            self.written += len(changes)
            reweigh(world, self._balancing, self.pool.take(changes))

    def shares(self) -> NDArray[np.float64]:
        """Of the even share, by weights: float64[n]."""
        shares: NDArray[np.float64] = self.pool.weights / self.pool.weights.mean()
        return shares


def _reactions(
    scenario: Scenario, visits: list[Visit], shares: list[NDArray[np.float64]]
) -> tuple[float | None, float | None]:
    """Median reaction, and the part of neighbours that were reacted to."""
    found: list[float] = []
    asked = 0
    for visit in visits:
        first = math.ceil(visit.from_s / scenario.interval_s)
        last = math.floor(min(visit.until_s, scenario.length_s) / scenario.interval_s)
        if visit.rho_bg < REACTS_FROM or last - first < 2:
            continue
        asked += 1
        for tick in range(first, last):
            if shares[tick][visit.server] < 0.5:
                found.append((tick + 1) * scenario.interval_s - visit.from_s)
                break
    if not asked:
        return None, None
    return (float(np.median(found)) if found else None), len(found) / asked


def _moved_for_nothing(
    scenario: Scenario, visits: list[Visit], shares: list[NDArray[np.float64]]
) -> float:
    if not shares:
        return 0.0
    quiet = np.ones((len(shares), scenario.servers), np.bool_)
    for visit in visits:
        first = math.floor(visit.from_s / scenario.interval_s)
        last = math.ceil(visit.until_s / scenario.interval_s) + 5
        quiet[max(first, 0) : last, visit.server] = False
    moved = np.array(shares) < 0.5
    return float((moved & quiet).sum() / max(int(quiet.sum()), 1))
