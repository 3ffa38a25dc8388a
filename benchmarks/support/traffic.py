"""What the control path of a service sends, by its real encoders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dial.adapter import RequestBatch
from dial.agent.wire import encode as encode_samples
from dial.fleet.plans import PlanDocument
from dial.fleet.sketch import SketchedWindows
from dial.fleet.windows import Lines, encode
from dial.types import BalancerState, ServerState, WeightKind, WeightMeaning
from dial_sim.pool import names_of, sample

_CONTENDED = 0.05
_RATE_PER_SERVER = 5.0
_INTERVAL_S = 10.0
_MEANING = WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes a second of a service of n backends at 5 requests/s each.

    Attributes
    ----------
    samples_bytes_per_s
        Of all agents, at 1 Hz.
    windows_bytes_per_s
        Of one reader, once in 10 s.
    plan_bytes
        Of one plan with a twentieth of the backends contended.
    """

    backends: int
    samples_bytes_per_s: float
    windows_bytes_per_s: float
    plan_bytes: int


def traffic(backends: int) -> Traffic:
    """Encode one of each."""
    names = names_of(backends)
    random = np.random.default_rng(1)
    body = encode_samples("s1", "web-1:4711", [sample(1.8e9, 1.0, 0.5, 0.1)])
    n = round(backends * _RATE_PER_SERVER * _INTERVAL_S)
    windows = SketchedWindows()
    windows.add(
        RequestBatch(
            names=names,
            backend=random.integers(0, backends, n).astype(np.int32),
            end_s=np.full(n, np.nan),
            latency_ms=random.exponential(200.0, n),
            connect_ms=np.full(n, np.nan),
            failed=np.zeros(n, np.bool_),
        )
    )
    servers = tuple(ServerState(name, 100, 100, True, 1, 12_345_678, 12) for name in names)
    messages = encode(
        BalancerState("4711:1795211945", "roundrobin", _MEANING, servers),
        windows.close(names),
        Lines(),
        reader="lb-1",
        life=1.8e9,
        seq=1,
    )
    # While load is shifted weights are on a scale of their own, so a plan names every backend.
    plan = PlanDocument(
        service="app",
        term=1,
        leader="dial-1",
        at_s=1.8e9,
        weights={name: 25 if random.random() < _CONTENDED else 105 for name in names},
    )
    return Traffic(
        backends,
        samples_bytes_per_s=float(backends * len(body)),
        windows_bytes_per_s=sum(map(len, messages)) / _INTERVAL_S,
        plan_bytes=len(plan.model_dump_json()),
    )
