"""How far the simulation is from the lab: each case of the committed data set, simulated.

A *case* is one machine in one stage of a recording: its arrival rate, the saturation throughput
that was measured before, and what the neighbour was measured to take.  The simulation is given
these and the machine as it is built (a CPU quota of 0.3 in periods of 10 ms, exponential work), and
nothing is fitted.  Compared is P90 of the response time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import numpy as np

from dial.types import Cause, NoData
from dial_sim.engine import ROUND_ROBIN, advance, new_world, percentiles_ms
from dial_training.dataset import STAGE, Case, Dataset

DATA = Path("training/data/dial.parquet")

QUOTA = 0.3
PERIOD_S = 0.01
"""Of an emulated machine: lab/README.md."""

_MACHINES = 3
_LENGTH_S = 600.0
_HIGHEST_LOAD = 0.9
"""Beyond that a queue takes longer than a stage to become what it will be."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One case: measured and simulated P90."""

    case: str
    label: Cause
    utilisation: float
    lab_ms: float
    simulated_ms: float

    @property
    def error(self) -> float:
        """Of the simulation, relative."""
        return self.simulated_ms / self.lab_ms - 1.0


def compared(path: Path = DATA, seed: int = 1) -> list[Compared]:
    """Every CPU case of the shared-kernel lab whose truth was measured, below 90 % utilisation."""
    return [
        _simulated(case, lab_ms, rate_per_s, seed + number)
        for number, (case, lab_ms, rate_per_s) in enumerate(_cases(path))
        if _utilisation(case, rate_per_s) <= _HIGHEST_LOAD
    ]


def median_error(found: list[Compared], label: Cause) -> float:
    """Median absolute relative error of the cases of a label."""
    return median(abs(one.error) for one in found if one.label is label)


def _cases(path: Path) -> Iterator[tuple[Case, float, float]]:
    """Cases with their median P90 and mean arrival rate."""
    for case in Dataset.load(path).cases():
        truth, session = case.truth, case.session
        if session.resource != Cause.CPU or session.guest != "shared" or truth.phase != STAGE:
            continue
        if truth.label not in (Cause.NONE, Cause.CPU):
            continue
        if truth.label is Cause.CPU and truth.rho_bg_true is None:
            continue
        windows = [
            backend.window
            for at in case.at
            for backend in session.ticks[at].observation.backends
            if backend.name == case.machine
        ]
        times_ms = [w.t_x_ms for w in windows if not isinstance(w.t_x_ms, NoData)]
        if times_ms:
            yield case, median(times_ms), mean(w.rate_per_s for w in windows)


def _throughput_per_s(case: Case) -> float:
    return case.session.quiet_rps[case.machine] / case.truth.cost_factor


def _left(case: Case) -> float:
    return 1.0 - min(max(case.truth.rho_bg_true or 0.0, 0.0), 0.95)


def _utilisation(case: Case, rate_per_s: float) -> float:
    return rate_per_s / (_throughput_per_s(case) * _left(case))


def _simulated(case: Case, lab_ms: float, rate_per_s: float, seed: int) -> Compared:
    world = new_world(_MACHINES, balancers=1, seed=seed, kept=1)
    world.from_s[:], world.left[:] = 0.0, _left(case)
    work_s = QUOTA / _throughput_per_s(case)
    rate = np.float64(_MACHINES * rate_per_s)
    advance(world, ROUND_ROBIN, _LENGTH_S, rate, work_s, QUOTA, PERIOD_S)
    (p90_ms,) = percentiles_ms(world.histogram, 90.0)
    return Compared(case.case, case.truth.label, _utilisation(case, rate_per_s), lab_ms, p90_ms)
