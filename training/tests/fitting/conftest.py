"""A simulated data set: M/M/1 machines whose signals behave as the literature says they do.

It is for the arithmetic of fitting and evaluation only.  Nothing that is measured on it says
anything of a real machine, and no model made from it is ever shipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from dial.queueing import percentile_factor
from dial.types import (
    METRIC_NAMES,
    AgentSample,
    BackendObservation,
    Cause,
    NoData,
    Observation,
    RequestWindow,
    ServerState,
    WeightKind,
    WeightMeaning,
)
from dial_training.dataset import (
    EDGE,
    LEARN,
    STAGE,
    Dataset,
    LabelledTick,
    Session,
    Setting,
    Truth,
)
from dial_training.fit import fit, study_all

MACHINES = ("s1", "s2", "s3")
RESOURCES = (Cause.CPU, Cause.NET, Cause.DISK, Cause.LLC)
CAPACITY_CORES = 0.3
PEAK_RPS = 150.0
INTERVAL_S = 2.0
P90 = percentile_factor(90.0)
SETTING = Setting(
    90.0, "roundrobin", WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)
)
OUTSIDE = Truth(LEARN, None, None, Cause.NONE, None, 0.0, None, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """Who has which neighbour, and what the tenant's own load does."""

    neighbours: Mapping[str, tuple[Cause, float]] = field(default_factory=dict)
    rate_factor: float = 1.0
    cost_factor: float = 1.0
    ticks: int = 15
    program: str = "simulated"


class Simulation:
    """Sessions of three M/M/1 machines.

    T_x has the sampling error of a percentile of as many requests as the tick has; ``noise``
    is the relative error of all other signals.
    """

    def __init__(self, seed: int = 1, noise: float = 0.05) -> None:
        self.random = np.random.default_rng(seed)
        self.noise = noise

    def session(
        self,
        name: str,
        *stages: Stage,
        in_set: str = "train",
        resource: Cause = Cause.CPU,
        load: float = 0.4,
        learn_ticks: int = 20,
    ) -> Session:
        """A learning phase, then the stages with an edge tick before each."""
        ticks: list[LabelledTick] = []
        self._add(ticks, name, Stage(ticks=learn_ticks), dict.fromkeys(MACHINES, OUTSIDE), load)
        edge = dict.fromkeys(MACHINES, replace(OUTSIDE, phase=EDGE))
        for number, stage in enumerate(stages):
            truths = {machine: _truth(name, number, machine, stage) for machine in MACHINES}
            self._add(ticks, name, replace(stage, ticks=1), edge, load)
            self._add(ticks, name, stage, truths, load)
        return Session(
            name,
            in_set,
            resource.value,
            load,
            1,
            "shared",
            dict.fromkeys(MACHINES, PEAK_RPS),
            tuple(ticks),
        )

    def _add(
        self,
        ticks: list[LabelledTick],
        session: str,
        stage: Stage,
        truths: Mapping[str, Truth],
        load: float,
    ) -> None:
        for _ in range(stage.ticks):
            at = len(ticks) + 1
            now_s = 1_000_000.0 + INTERVAL_S * at
            observation = Observation(
                at,
                now_s,
                INTERVAL_S,
                session,
                SETTING.algorithm,
                SETTING.meaning,
                tuple(self._backend(m, now_s, stage, load) for m in MACHINES),
                "",
            )
            ticks.append(LabelledTick(observation, truths))

    def _backend(self, machine: str, now_s: float, stage: Stage, load: float) -> BackendObservation:
        cause, rho_bg = stage.neighbours.get(machine, (Cause.NONE, 0.0))
        rho_fg = load * stage.rate_factor * stage.cost_factor
        requests = max(
            int(self.random.poisson(load * stage.rate_factor * PEAK_RPS * INTERVAL_S)), 1
        )
        idle = max(1.0 - rho_fg - rho_bg, 0.02)
        # Of the 90th percentile of that many exponential times: sqrt(p / ((1 - p) n)) / L.
        error = np.exp(self.random.normal(0.0, np.sqrt(9.0 / requests) / P90))
        t_x_ms = float(1e3 * P90 / PEAK_RPS / idle * error)
        window = RequestWindow(
            requests=requests,
            errors=0,
            rate_per_s=requests / INTERVAL_S,
            t_x_ms=t_x_ms,
            t_x_requests=requests,
            t_mean_ms=t_x_ms / P90,
            t_c_ms=self._about(0.5 * (1.0 + 8.0 * rho_bg * (cause is Cause.NET))),
        )
        sample = self._sample(now_s, cause, rho_bg, window.rate_per_s * stage.cost_factor)
        return BackendObservation(
            machine, window, sample, ServerState(machine, 100, 100, True, 0, 0, 0)
        )

    def _sample(self, at_s: float, cause: Cause, rho_bg: float, rate_per_s: float) -> AgentSample:
        used_cores = CAPACITY_CORES * rate_per_s / PEAK_RPS
        taken = {each: rho_bg * (cause is each) for each in Cause}
        metrics = {
            "cpu_usr_cores": 0.8 * used_cores * (1.0 + 2.0 * taken[Cause.LLC]),
            "cpu_sys_cores": 0.2 * used_cores,
            "cpu_iowait_cores": 0.002 + 0.5 * taken[Cause.DISK],
            "cpu_steal_cores": 0.001 + 0.3 * taken[Cause.CPU],
            "cpu_capacity_cores": CAPACITY_CORES,
            "run_queue_wait_cores": 0.02 + 0.8 * taken[Cause.CPU],
            "psi_cpu_some_fraction": 0.02 + 0.8 * taken[Cause.CPU],
            "psi_io_some_fraction": 0.05 + 0.8 * taken[Cause.DISK],
            "psi_io_full_fraction": 0.01,
            "throttled_fraction": taken[Cause.SELF_LIMITED],
            "tcp_segments_out_per_s": 4.0 * rate_per_s,
            "tcp_retransmits_per_s": 0.2 * rate_per_s * taken[Cause.NET],
            "memory_reload_ns": 14.0 * (1.0 + 6.0 * taken[Cause.LLC]),
        }
        known = {name: self._about(value) for name, value in metrics.items()}
        missing = {name: NoData("not simulated") for name in METRIC_NAMES}
        return AgentSample(at_s=at_s, interval_s=INTERVAL_S, **(missing | known))

    def _about(self, value: float) -> float:
        return float(value * np.exp(self.random.normal(0.0, self.noise)))


def _truth(session: str, number: int, machine: str, stage: Stage) -> Truth:
    cause, rho_bg = stage.neighbours.get(machine, (Cause.NONE, 0.0))
    if cause is Cause.NONE and (stage.rate_factor, stage.cost_factor) != (1.0, 1.0):
        cause = Cause.LOAD
    return Truth(
        phase=STAGE,
        stage=number,
        case=f"{session}/{number}/{machine}",
        label=cause,
        program=stage.program if machine in stage.neighbours else None,
        rho_bg_asked=rho_bg,
        rho_bg_true=rho_bg,
        rate_factor=stage.rate_factor,
        cost_factor=stage.cost_factor,
    )


def simulated(**rounds: int) -> Dataset:
    """So many rounds of each set; a round is a session of each resource."""
    taken = {"train": (0.3, 0.45), "heldout": (0.4, 0.25), "unseen": (0.35, 0.45)}
    simulation = Simulation()
    sessions = []
    for in_set, count in rounds.items():
        for repeat, resource in ((i, r) for i in range(count) for r in RESOURCES):
            stages = [Stage(), Stage(rate_factor=1.5)]
            if in_set in taken:
                first, second = taken[in_set]
                stages += [
                    Stage({"s1": (resource, first)}),
                    Stage({"s2": (resource, second), "s3": (Cause.SELF_LIMITED, 0.3)}),
                ]
            sessions.append(
                simulation.session(
                    f"{in_set}-{resource}-{repeat}",
                    *stages,
                    in_set=in_set,
                    resource=resource,
                    load=(0.3, 0.4, 0.45)[repeat % 3],
                )
            )
    return Dataset(SETTING, tuple(sorted(sessions, key=lambda s: s.session)))


@pytest.fixture(scope="session")
def data() -> Dataset:
    """Enough of every set to fit and to measure."""
    return simulated(train=3, heldout=1, unseen=1, quiet=1)


@pytest.fixture(scope="session")
def studied(data):
    return study_all(data)


@pytest.fixture(scope="session")
def fitted(studied):
    return fit(studied)


@pytest.fixture
def lab() -> Simulation:
    return Simulation()


@pytest.fixture
def stage_of():
    return Stage
