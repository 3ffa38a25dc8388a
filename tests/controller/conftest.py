"""A service of M/M/1 backends whose observations are exact: what step is tested on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from dial.controller import look
from dial.controller.policy import Policy, PolicySource
from dial.controller.state import State
from dial.controller.step import step
from dial.model import STARTER, load_model
from dial.queueing import percentile_factor
from dial.settings import DetectorSettings, EstimatorSettings, GuardSettings, StrategySettings
from dial.types import (
    METRIC_NAMES,
    NO_ORDERS,
    AgentSample,
    BackendObservation,
    NoData,
    Observation,
    Orders,
    Plan,
    RequestWindow,
    ServerState,
    WeightKind,
    WeightMeaning,
)

PEAK_RPS = 150.0
ROUND_ROBIN = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)


def sample(at_s: float, **metrics: float) -> AgentSample:
    """A sample with these metrics; all others are missing."""
    missing = {name: NoData("not measured") for name in METRIC_NAMES}
    return AgentSample(at_s=at_s, interval_s=1.0, **(missing | metrics))


@dataclass
class Service:
    """Backends of 150 requests/s each, weights as a round robin, T90 by M/M/1."""

    policy: Policy
    names: tuple[str, ...] = ("s1", "s2", "s3")
    arrival_per_s: float = 170.0
    meaning: WeightMeaning = ROUND_ROBIN
    epoch: str = "1"
    tick: int = 0
    tick_offset_s: float = 0.0
    state: State = field(default_factory=State)
    rho_bg: dict[str, float] = field(default_factory=dict)
    """What neighbours take of the CPU."""
    cache_rho_bg: dict[str, float] = field(default_factory=dict)
    """What they take by making each request need more CPU time."""
    link_rho_bg: dict[str, float] | None = None
    """What they take of the links; where it is not told, connections are reused."""
    disk_rho_bg: dict[str, float] | None = None
    """What they take of the disks; where it is not told, nothing is read."""
    deferred: dict[str, float] = field(default_factory=dict)
    """Part of activities' time that they wait for one another, of applications that tell it."""
    given: dict[str, float] = field(default_factory=dict)
    """What the balancer gives them beside what their weights say; 1 where nothing is said."""
    own_services: dict[str, float] = field(default_factory=dict)
    """Part of the VM's CPU that its other services take, where the agent tells it."""
    softirq: dict[str, float] = field(default_factory=dict)
    """The same of packets."""
    missed_s: dict[str, float] = field(default_factory=dict)
    """For how long targets have been missed that nothing inside the VM meets."""
    idle_cores: float = 0.0
    """What each VM uses whatever its load is; with it utilisation needs configured peaks."""
    weights: dict[str, int] = field(default_factory=dict)
    configured: dict[str, int] = field(default_factory=dict)
    unusable: set[str] = field(default_factory=set)
    agents_dead: set[str] = field(default_factory=set)
    hardly_used: set[str] = field(default_factory=set)
    """Those whose requests are too few for a T90."""
    orders: Orders = NO_ORDERS
    observations: list[Observation] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.configured = self.configured or dict.fromkeys(self.names, 100)
        self.weights = dict(self.configured)

    def observe(self, noise: Mapping[str, float] | None = None) -> Observation:
        """The next tick's observation; ``noise`` multiplies T90 by backend."""
        self.tick += 1
        now_s = 1_000_000.0 + 2.0 * self.tick + self.tick_offset_s
        parts = {n: w * self.given.get(n, 1.0) for n, w in self.weights.items()}
        total = sum(part for n, part in parts.items() if n not in self.unusable)
        backends = []
        for name in self.names:
            usable = name not in self.unusable
            rate = self.arrival_per_s * parts[name] / total if usable else 0.0
            taken = self.rho_bg.get(name, 0.0)
            link = (self.link_rho_bg or {}).get(name, 0.0)
            disk = (self.disk_rho_bg or {}).get(name, 0.0)
            slowed = 1.0 - self.cache_rho_bg.get(name, 0.0)
            deferred = self.deferred.get(name)
            others, packets = self.own_services.get(name), self.softirq.get(name)
            own = (1.0 - (others or 0.0)) * (1.0 - (packets or 0.0))
            hardware = (1.0 - taken) * (1.0 - link) * (1.0 - disk) * slowed
            left_per_s = PEAK_RPS * hardware * (1.0 - (deferred or 0.0)) * own
            spare_per_s = max(left_per_s - rate, 1.0)
            t90_ms = 1e3 * percentile_factor(90.0) / spare_per_s * (noise or {}).get(name, 1.0)
            used_cores = min(0.3, 0.3 * rate / PEAK_RPS / slowed)
            told = {
                "deferral_fraction": deferred,
                "own_services_cores": None if others is None else 0.3 * others,
                "net_softirq_cores": None if packets is None else 0.3 * packets,
                "targets_missed_s": self.missed_s.get(name),
            }
            if self.disk_rho_bg is not None:
                told["psi_io_some_fraction"] = min(1.0, rate / PEAK_RPS / (1.0 - disk))
                told["disk_bytes_per_s"] = 6e4 * rate
            inside = sample(
                now_s,
                cpu_usr_cores=0.8 * used_cores + 0.3 * (others or 0.0) + self.idle_cores,
                cpu_sys_cores=0.2 * used_cores,
                cpu_capacity_cores=0.3,
                run_queue_wait_cores=used_cores * (1.15 / (1.0 - taken) - 1.0),
                throttled_fraction=0.0,
                **{metric: value for metric, value in told.items() if value is not None},
            )
            backends.append(
                BackendObservation(
                    name,
                    RequestWindow(
                        requests=round(2 * rate),
                        errors=0,
                        rate_per_s=rate,
                        t_x_ms=t90_ms
                        if rate and name not in self.hardly_used
                        else NoData("too few requests; 20 are needed"),
                        t_x_requests=round(2 * rate),
                        t_mean_ms=t90_ms / percentile_factor(90.0),
                        t_c_ms=NoData("connections are reused")
                        if self.link_rho_bg is None
                        else 4.0 / (1.0 - link),
                    ),
                    NoData("no sample from an agent in this tick")
                    if name in self.agents_dead
                    else inside,
                    ServerState(name, self.weights[name], self.configured[name], usable, 0, 0, 0),
                )
            )
        return Observation(
            self.tick,
            now_s,
            2.0,
            self.epoch,
            "roundrobin",
            self.meaning,
            tuple(backends),
            "m",
            orders=self.orders,
        )

    def run(self, ticks: int = 1, *, apply: bool = True) -> Plan:
        """Let ticks pass; each plan is applied at once. Returns the last one.

        T90 is 5 % up in one tick and 5 % down in the next, so that the band has a width.
        """
        for _ in range(ticks):
            wobble = 1.05 if self.tick % 2 else 0.95
            observation = self.observe(dict.fromkeys(self.names, wobble))
            self.state, plan = step(self.policy, self.state, observation)
            self.observations.append(observation)
            self.plans.append(plan)
            if apply:
                self.weights |= dict(plan.changes)
        return plan

    def reload(self) -> None:
        """The balancer loses all weights that are not in its configuration."""
        self.epoch += "'"
        self.weights = dict(self.configured)


@pytest.fixture
def wait_says_nothing(monkeypatch):
    """The wait for the CPU says nothing but the cause.

    In the simulated service it is far surer than any other witness, and enough after one interval.
    """

    def nothing(features, seen, interval_s, heard, for_its_load):
        return np.full((2, heard.size), math.nan)

    monkeypatch.setattr(look, "_by_cpu_wait", nothing)


def source(**guards: float) -> PolicySource:
    return PolicySource(
        percentile=90.0,
        detector=DetectorSettings(),
        estimator=EstimatorSettings(),
        strategies=StrategySettings(),
        guards=GuardSettings(**guards),
        peak_rps={},
        model=load_model(STARTER),
    )


@pytest.fixture
def policy_source() -> PolicySource:
    return source()


@pytest.fixture
def service(policy_source: PolicySource) -> Service:
    """Three backends, quiet until told otherwise, and learnt for twenty ticks."""
    found = Service(Policy.of(policy_source))
    found.run(20)
    return found


@pytest.fixture
def make_service():
    def make(
        *,
        guards: Mapping[str, float] | None = None,
        strategies: Mapping[str, str] | None = None,
        peak_rps: Mapping[str, float] | None = None,
        **arguments: object,
    ) -> Service:
        policy = replace(
            Policy.of(source()),
            guards=GuardSettings(**(guards or {})),
            strategies=StrategySettings(**(strategies or {})),
            peak_rps=peak_rps or {},
        )
        return Service(policy, **arguments)

    return make


@pytest.fixture
def with_idle_cores(make_service) -> Service:
    """The same as ``service``, of VMs that use 0.1 core for themselves: 0.113 is for requests.

    Learnt at one load only, it is booked to the requests.  Of a fifth of them each costs
    (0.1 + 0.023 + 0.02)/(0.043 + 0.02) = 2.3 times as much, whoever else is there.
    """
    found = make_service(idle_cores=0.1, peak_rps=dict.fromkeys(("s1", "s2", "s3"), PEAK_RPS))
    found.run(20)
    return found
