"""Snapshots of a made-up service, of any size: quiet for a while, then some in contention."""

from __future__ import annotations

import math
import random

from dial.controller.snapshot import Publisher, Snapshot
from dial.types import (
    NO_ORDERS,
    Action,
    ApplyReport,
    BackendObservation,
    BackendPlan,
    Cause,
    Mode,
    NoData,
    Observation,
    Orders,
    Plan,
    RequestWindow,
    ServerState,
    Verdict,
    WeightKind,
    WeightMeaning,
)

NOW_S = 1_700_000_000.0
CAUSES = (Cause.CPU, Cause.NET, Cause.DISK, Cause.LLC, Cause.UNKNOWN)
WHY = {
    Cause.CPU: "CPU: CPU wait above normal by 0.62 >= 0.2",
    Cause.NET: "NET: connect time 6.1x >= 2.3",
    Cause.DISK: "DISK: I/O pressure 4.2x >= 1.4",
    Cause.LLC: "LLC: memory latency 2.4x >= 1.5",
    Cause.UNKNOWN: "far slower than its siblings: load moves before the cause is known",
}


class Pool:
    """A service of ``n`` backends, of which ``slow`` get a neighbour after half of the time."""

    def __init__(self, n: int, slow: int, mode: Mode = Mode.ENFORCE, names: str = "s{}") -> None:
        self.names = [names.format(i + 1) for i in range(n)]
        picked = random.Random(7).sample(range(n), slow)
        self.slow = {self.names[i]: CAUSES[k % len(CAUSES)] for k, i in enumerate(sorted(picked))}
        self.mode = mode
        self.orders: Orders = NO_ORDERS
        self.tick = 0
        self.publisher = Publisher(self.before())
        self._random = random.Random(1)

    def before(self) -> Snapshot:
        return Snapshot("checkout", "haproxy", self.mode, NOW_S, NOW_S)

    def run(self, ticks: int) -> None:
        """Publish so many ticks."""
        for _ in range(ticks):
            self.publisher.publish(self.next())

    def next(self, *, slow: bool | None = None) -> Snapshot:
        """The next tick; contended from the 90th on."""
        self.tick += 1
        contended = self.tick > 90 if slow is None else slow
        at_s = NOW_S + self.tick
        seen, planned = [], []
        for i, name in enumerate(self.names):
            cause = self.slow.get(name, Cause.NONE) if contended else Cause.NONE
            seen.append(self._seen(i, name, cause))
            planned.append(self._planned(i, name, cause, seen[-1]))
        total = sum(b.weight for b in planned)
        plans = tuple(BackendPlan(b.name, b.verdict, b.weight / total, b.weight) for b in planned)
        moved = any(b.verdict.cause is not Cause.NONE for b in plans)
        who = ", ".join(f"{n} ({c})" for n, c in list(self.slow.items())[:3])
        more = f" and {len(self.slow) - 3} others" if len(self.slow) > 3 else ""
        observation = Observation(
            self.tick,
            at_s,
            1.0,
            "1",
            "roundrobin",
            WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True),
            tuple(seen),
            "sha256:abc",
            orders=self.orders,
        )
        plan = Plan(
            self.tick,
            at_s,
            Action.HOLD if not moved else Action.SHIFT,
            f"load moves away from {who}{more}" if moved else "no neighbour found",
            plans,
        )
        report = None
        if moved:
            weights = tuple((n, 30) for n in list(self.slow)[:4])
            report = ApplyReport(91, NOW_S + 91, weights, weights)
        frozen = self.orders.frozen and self.mode is Mode.ENFORCE
        return Snapshot(
            "checkout",
            "haproxy",
            Mode.FROZEN if frozen else self.mode,
            NOW_S,
            at_s,
            observation,
            plan,
            report,
            orders=self.orders,
        )

    def _seen(self, i: int, name: str, cause: Cause) -> BackendObservation:
        wave = 1.0 + 0.12 * math.sin(self.tick / 23 + i)
        base = 9.0 + 4.0 * (i % 5)
        times = 3.4 if cause is not Cause.NONE and self.tick < 96 else 1.7
        t_x_ms = base * wave * self._random.uniform(0.9, 1.1)
        t_x_ms *= times if cause is not Cause.NONE else 1.0
        rate = (8.0 if cause is not Cause.NONE else 42.0) * wave
        weight = 30 if cause is not Cause.NONE else 100
        nothing = NoData("connections are reused")
        idle = NoData("no sample from an agent in this tick")
        window = RequestWindow(
            round(rate), 0, rate, t_x_ms, round(rate), t_x_ms / 2.3, nothing, served_per_s=rate
        )
        return BackendObservation(
            name, window, idle, ServerState(name, weight, 100, True, 2, 10 * self.tick, 0)
        )

    def _planned(self, i: int, name: str, cause: Cause, seen: BackendObservation) -> BackendPlan:
        t_x_ms = seen.window.t_x_ms
        assert isinstance(t_x_ms, float)
        if self.tick < 7:
            nothing = NoData(f"learning: {self.tick} of 6 quiet intervals")
            verdict = Verdict(Cause.NONE, 0.3, nothing, nothing, nothing)
            return BackendPlan(name, verdict, 0.0, 100)
        expected = 1.32 * (9.0 + 4.0 * (i % 5))
        evidence = [f"T90 {t_x_ms:.1f} ms, expected at most {expected:.1f} at this load"]
        rho_bg: float | NoData = NoData("not slower than expected")
        if cause is not Cause.NONE:
            rho_bg = 0.55
            evidence += [WHY[cause], "rho_bg 0.55 +- 0.06"]
        verdict = Verdict(cause, 0.31, rho_bg, 150.0, expected, tuple(evidence))
        return BackendPlan(name, verdict, 0.0, 30 if cause is not Cause.NONE else 100)
