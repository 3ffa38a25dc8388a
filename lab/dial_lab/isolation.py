"""How well a tenant is isolated from a neighbour that takes more and more: I_plr, I_avg, I_max.

Problem
    A neighbour goes from nothing to all it may take in m equal steps.  What the tenant has at
    each step, over what it has with no neighbour, is one figure a step; how isolated it is has
    to be one figure.

Formula
    ::

        q_d     = W_d / W_d,ref       the neighbour's work over the most it does: the step
        q_a     = W_a / W_a,ref       the tenant's, over that with no neighbour
        I_plr   = |W_a,ref - W_a| / W_a,ref      performance loss rate, a step's
        I_avg   = mean of q_a over the steps
        I_max   = min q_a / the q_d where that is

    Of both I_avg and I_max 1 is perfect.  I_max can be above it: a tenant that loses nothing
    where the neighbour does little.

Source
    Volpert et al., "Exemplary Determination of Cgroups-Based QoS Isolation for a Database
    Workload", ICPE 2024 Companion, Eq. 1 to 6, scenario "harmony".

Departures
    The tenant is a service of several VMs, one of which has the neighbour: what a balancer can
    do for it is to be seen.  Beside throughput, of which an open loop shows the loss only when
    requests wait for ever, W_a is the inverse of a percentile of the response time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dial_lab import report
from dial_lab.report import BlockResult


@dataclass(frozen=True, slots=True)
class Isolation:
    """The figures of one W_a.

    Attributes
    ----------
    i_plr
        By step.
    i_avg, i_max
        Over all steps; ``i_max`` is ``None`` where the tenant had least with no neighbour.
    """

    i_plr: tuple[float, ...]
    i_avg: float
    i_max: float | None

    @classmethod
    def of(cls, q_d: Sequence[float], q_a: Sequence[float]) -> Isolation:
        """From the neighbour's and the tenant's part at each step.

        Examples
        --------
        >>> Isolation.of([0.0, 0.5, 1.0], [1.0, 0.9, 0.6])
        Isolation(i_plr=(0.0, 0.1, 0.4), i_avg=0.8333, i_max=0.6)
        """
        least = min(range(len(q_a)), key=lambda step: q_a[step])
        return cls(
            tuple(round(abs(1.0 - one), 4) for one in q_a),
            round(sum(q_a) / len(q_a), 4),
            round(q_a[least] / q_d[least], 4) if q_d[least] > 0.0 else None,
        )

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        return {"i_plr": list(self.i_plr), "i_avg": self.i_avg, "i_max": self.i_max}


def figures(steps: Sequence[float], blocks: Sequence[BlockResult], x: float) -> dict[str, Any]:
    """Isolation of one policy's throughput and x-th percentile, over all rounds.

    Parameters
    ----------
    steps
        What the neighbour did in equal parts of the contended phase, of the most it does.
    blocks
        Of one policy.  The quiet phase is the reference.
    x
        The percentile.
    """
    quiet_rps, quiet_ms = _work(blocks, 0.0, blocks[0].phases.quiet_s, x)
    begin_s, end_s = blocks[0].phases.bounds()["contended"]
    edges_s = np.linspace(begin_s, end_s, len(steps) + 1)
    work = [_work(blocks, *edges, x) for edges in pairwise(map(float, edges_s))]
    return {
        "neighbour": list(steps),
        "throughput": Isolation.of(steps, [w[0] / quiet_rps for w in work]).as_json(),
        f"p{x:g}": Isolation.of(steps, [quiet_ms / w[1] for w in work]).as_json(),
    }


def _work(
    blocks: Sequence[BlockResult], begin_s: float, end_s: float, x: float
) -> tuple[float, float]:
    """Answers that came in a second, and the x-th percentile of those asked for, ms."""
    answered, latency_ms = 0, []
    for block in blocks:
        results = block.results
        done_s = results.intended_s + results.latency_ms / 1e3
        answered += int((results.ok & (done_s >= begin_s) & (done_s < end_s)).sum())
        asked = (results.intended_s >= begin_s) & (results.intended_s < end_s)
        latency_ms.append(results.latency_ms[asked & results.ok])
    t_x_ms = report.percentile_ms(report.together(latency_ms), x)
    return answered / (end_s - begin_s) / len(blocks), t_x_ms or float("nan")
