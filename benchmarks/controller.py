"""How long one tick takes, and whether a day of ticks grows.

``tick_ms_3``, ``tick_ms_1000``, ``tick_ms_10000``
    Median time of what a controller does in a tick of so many backends, but for talking to the
    balancer: close the windows, merge the agents' samples, build the Observation, ``step``, keep
    what has changed.  Ten requests/s each, ticks of 10 s, a neighbour on one backend in fifty.
``step_ms_3``, ``step_ms_1000``, ``step_ms_10000``
    Of that, ``step`` alone.
``quiet_tick_ms_3``, ``quiet_tick_ms_1000``, ``quiet_tick_ms_10000``
    A tick without any neighbour: nothing is split, and what is seen is learnt.
``rss_growth_mib``
    Of memory over a day of ticks of a second (86,400) of ten backends, neighbours coming and going,
    after the first hour of it.
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.support.harness import machine, report, versions
from benchmarks.support.memory import rss_mib
from dial.adapter import RequestBatch
from dial.controller.policy import Policy, PolicySource
from dial.controller.snapshot import Publisher, Snapshot
from dial.controller.state import State
from dial.controller.step import step
from dial.model import LAB, load_model
from dial.settings import Settings
from dial.telemetry import Observer, RequestWindows
from dial.types import (
    METRIC_NAMES,
    AgentSample,
    BalancerState,
    Mode,
    NoData,
    ServerState,
    WeightKind,
    WeightMeaning,
)

_SEED = 1
_PEAK_RPS = 20.0
_RATE_PER_S = 10.0
_INTERVAL_S = 10.0
_CONTENDED_EVERY = 50
_RHO_BG = 0.4
_WARM_UP = 12
"""Ticks until the quiet past is learnt; neighbours come then."""

_DAY_TICKS = 86_400
_HOUR_TICKS = 3_600
_DAY_BACKENDS = 10
_ABSENT = dict.fromkeys(METRIC_NAMES, NoData("not measured"))
_MEANING = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)


class Fleet:
    """Backends that answer as M/M/1 would, and a controller's decisions on them.

    Parameters
    ----------
    backends : how many.
    interval_s : of a tick.
    """

    def __init__(self, backends: int, interval_s: float) -> None:
        self.names = tuple(f"s{number}" for number in range(backends))
        settings = Settings(
            service="app",
            adapter={"name": "none"},
            interval_s=interval_s,
            backends={name: {"peak_rps": _PEAK_RPS} for name in self.names},
        )
        self.policy = Policy.of(PolicySource.of(settings, load_model(LAB)))
        self.state = State()
        self.weights = dict.fromkeys(self.names, 100)
        self.windows = RequestWindows(settings.percentile, settings.guards.min_requests)
        self.observer = Observer(self.windows, self.policy.model_checksum)
        # What is kept to be shown is memory, not time.
        first = Snapshot(settings.service, "none", Mode.SHADOW, 0.0, 0.0)
        self.publisher = Publisher(first, history=1)
        self.random = np.random.default_rng(_SEED)
        self.interval_s = interval_s
        self.now_s = 1_795_000_000.0
        self.total = np.zeros(backends, np.int64)

    def tick(self, rho_bg: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
        """One tick; returns what it took, and what ``step`` took of it, in seconds."""
        self.now_s += self.interval_s
        weights = np.array([self.weights[name] for name in self.names], float)
        rate = _RATE_PER_S * weights / weights.mean()
        requests = self.random.poisson(rate * self.interval_s)
        self.total += requests
        self.windows.add(self._log(requests, rate, rho_bg))
        samples = self._samples(rate, rho_bg)
        servers = tuple(
            ServerState(name, self.weights[name], 100, True, 1, total, 0)
            for name, total in zip(self.names, self.total.tolist(), strict=True)
        )
        balancer = BalancerState("1", "roundrobin", _MEANING, servers)
        begin_s = time.perf_counter()
        observation = self.observer.observe(balancer, samples, self.now_s, self.interval_s)
        observed_s = time.perf_counter()
        self.state, plan = step(self.policy, self.state, observation)
        decided_s = time.perf_counter()
        now = replace(self.publisher.current, observation=observation, plan=plan)
        self.publisher.publish(now)
        end_s = time.perf_counter()
        self.weights |= dict(plan.changes)
        return end_s - begin_s, decided_s - observed_s

    def _log(
        self,
        requests: np.ndarray[tuple[int], np.dtype[np.int64]],
        rate: np.ndarray[tuple[int], np.dtype[np.float64]],
        rho_bg: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> RequestBatch:
        mean_ms = 1e3 / np.maximum(_PEAK_RPS * (1.0 - rho_bg) - rate, 0.5)
        backend = np.repeat(np.arange(len(self.names), dtype=np.int32), requests)
        n = backend.size
        return RequestBatch(
            names=self.names,
            backend=backend,
            end_s=np.full(n, self.now_s),
            latency_ms=self.random.exponential(mean_ms[backend]),
            connect_ms=np.full(n, np.nan),
            failed=np.zeros(n, np.bool_),
        )

    def _samples(
        self,
        rate: np.ndarray[tuple[int], np.dtype[np.float64]],
        rho_bg: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> dict[str, tuple[AgentSample, ...]]:
        used = np.minimum(rate / _PEAK_RPS, 1.0)
        waited = 0.15 * used + rho_bg
        template = AgentSample(at_s=self.now_s, interval_s=self.interval_s, **_ABSENT)
        return {
            name: (
                replace(
                    template,
                    cpu_usr_cores=0.8 * u,
                    cpu_sys_cores=0.2 * u,
                    cpu_capacity_cores=1.0,
                    run_queue_wait_cores=w,
                    throttled_fraction=0.0,
                ),
            )
            for name, u, w in zip(self.names, used.tolist(), waited.tolist(), strict=True)
        }


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.controller", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--ticks", type=int, default=25, help="timed ticks per figure")
    parser.add_argument("--day-ticks", type=int, default=_DAY_TICKS, help="of the long run")
    arguments = parser.parse_args()

    result: dict[str, object] = {"benchmark": "controller"}
    lines = []
    for backends in (3, 1_000, 10_000):
        tick_ms, step_ms, quiet_ms = time_ms(backends, arguments.ticks)
        result |= {
            f"tick_ms_{backends}": tick_ms,
            f"step_ms_{backends}": step_ms,
            f"quiet_tick_ms_{backends}": quiet_ms,
        }
        lines.append(
            f"{backends:,} backends: tick {tick_ms:.2f} ms, of it step {step_ms:.2f} ms; "
            f"a quiet one {quiet_ms:.2f} ms"
        )
    growth_mib = grow(arguments.day_ticks)
    lines.append(f"{arguments.day_ticks:,} ticks of {_DAY_BACKENDS}: {growth_mib:+.1f} MiB")
    result |= {
        "rss_growth_mib": growth_mib,
        "day_ticks": arguments.day_ticks,
        "ticks": arguments.ticks,
        "machine": machine(),
        "versions": versions("dial-lb", "numpy", "scipy"),
    }
    report(lines, result, as_json=arguments.json)


def time_ms(backends: int, ticks: int) -> tuple[float, float, float]:
    """Median milliseconds of a tick, of its ``step``, and of a tick in which all is quiet."""
    fleet = Fleet(backends, _INTERVAL_S)
    quiet, contended = np.zeros(backends), np.zeros(backends)
    contended[::_CONTENDED_EVERY] = _RHO_BG
    for _ in range(_WARM_UP):
        fleet.tick(quiet)
    calm = [fleet.tick(quiet) for _ in range(ticks)]
    took = [fleet.tick(contended) for _ in range(ticks)]
    return (
        1e3 * median(tick for tick, _ in took),
        1e3 * median(steps for _, steps in took),
        1e3 * median(tick for tick, _ in calm),
    )


def grow(ticks: int) -> float:
    """Growth of memory after the first hour, in MiB."""
    fleet = Fleet(_DAY_BACKENDS, 1.0)
    rho_bg = np.zeros(_DAY_BACKENDS)
    before_mib = rss_mib()
    for tick in range(ticks):
        if tick % 600 == 0:
            rho_bg[:] = 0.0
            if tick % 1200 == 0:
                rho_bg[fleet.random.integers(0, _DAY_BACKENDS)] = _RHO_BG
        fleet.tick(rho_bg)
        if tick == min(_HOUR_TICKS, ticks // 2):
            gc.collect()
            before_mib = rss_mib()
    gc.collect()
    return rss_mib() - before_mib


if __name__ == "__main__":
    main()
