"""Figures of the report, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dial_lab.loadgen import Results
from dial_lab.reaction import Phases, Reaction
from dial_lab.report import BlockResult, draw, phase_figures, pieces, policy_figures, ratio, ratios

PHASES = Phases(quiet_s=10.0, contended_s=10.0, recovered_s=10.0)


def block(
    latency_ms: float, *, failed: int = 0, policy: str = "x", reaction: Reaction | None = None
) -> BlockResult:
    """One request each 0.1 s, from 1 s before the quiet phase on; the first ones failed."""
    intended_s = np.arange(-10, 300) / 10
    count = len(intended_s)
    status = np.full(count, 200, dtype=np.int16)
    status[10 : 10 + failed] = 503
    results = Results(
        intended_s,
        np.zeros(count),
        np.where(intended_s >= 10.0, latency_ms, 5.0),
        status,
        np.zeros(count, dtype=np.int16),
        ("s1",),
    )
    return BlockResult(policy, PHASES, results, reaction)


def test_phases_hold_their_own_requests_and_warm_up_counts_nowhere() -> None:
    figures = [phase_figures([block(20.0)], name) for name in ("quiet", "contended", "recovered")]
    assert [f["requests"] for f in figures] == [100, 100, 100]
    assert [f["p90_ms"] for f in figures] == [5.0, 20.0, 20.0]


def test_failed_requests_are_counted_and_in_no_percentile() -> None:
    figures = phase_figures([block(20.0, failed=7)], "quiet")
    assert figures["requests"] == 100
    assert figures["errors"] == 7
    assert figures["p99_ms"] == 5.0


def test_phase_without_answers_has_no_percentile() -> None:
    assert phase_figures([block(20.0, failed=100)], "quiet")["p90_ms"] is None


def test_pieces_are_five_seconds_long() -> None:
    assert [len(piece) for piece in pieces([block(20.0)], "contended")] == [50, 50]


def test_ratio_of_constant_latencies_is_exact_and_certain() -> None:
    ours, theirs = (draw([np.full(50, ms)] * 4, 90.0, seed=1) for ms in (10.0, 40.0))
    found = ratio(ours, theirs, 90.0)
    assert list(found)[:2] == ["p90", "ci95"]
    for name in ("p50", "p90", "p95", "p99", "mean"):
        assert found[name] == 0.25
        assert found["ci95" if name == "p90" else f"{name}_ci95"] == [0.25, 0.25]


def test_a_percentile_of_ones_own_is_reported_beside_the_others() -> None:
    drawn = draw([np.arange(101.0)], 30.0, seed=1)
    assert drawn is not None
    assert drawn.measured == {"p30": 30.0, "p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0} | {
        "mean": 50.0
    }
    assert ratio(drawn, drawn, 30.0)["ci95"] == [1.0, 1.0]


def test_interval_holds_the_ratio_and_narrows_with_more_pieces() -> None:
    random = np.random.default_rng(5)
    draws = [random.exponential(1.0, (2, 200)) for _ in range(64)]

    def width(count: int) -> float:
        ours, theirs = (draw([d[i] for d in draws[:count]], 90.0, seed=1) for i in (0, 1))
        found = ratio(ours, theirs, 90.0)
        low, high = found["ci95"]
        assert low <= found["p90"] <= high
        return float(high - low)

    assert width(64) < width(4)


def test_ratio_to_nothing_is_null() -> None:
    nothing, something = (draw([np.ones(count)], 90.0, seed=1) for count in (0, 3))
    assert ratio(nothing, something, 90.0) == {"p90": None, "ci95": None}
    assert ratio(something, nothing, 90.0) == {"p90": None, "ci95": None}


def test_each_policy_is_compared_with_each_other_one() -> None:
    found = ratios({"a": [block(10.0)], "b": [block(40.0)]}, 90.0, seed=1)
    assert found["a/b"]["p90"] == 0.25
    assert found["b/a"]["p90"] == 4.0


def test_what_only_a_controller_can_have_is_null_without_one() -> None:
    figures = policy_figures([block(10.0)], rho_bg_true=0.5)
    for key in (
        "reaction_s",
        "recovery_s",
        "direction_changes",
        "weight_changes_quiet",
        "verdicts",
    ):
        assert figures[key] is None
    assert figures["rho_bg"] == {"true": 0.5, "estimated": None}


def test_rounds_are_summed_up_by_median_worst_and_sum() -> None:
    def reaction(reaction_s: float | None, turns: int) -> Reaction:
        return Reaction(reaction_s, 4.0, turns, 1, {"cpu": 2}, 0.4, (), load_moved=True)

    blocks = [block(9.0, reaction=reaction(s, t)) for s, t in ((2.0, 0), (6.0, 3), (3.0, 0))]
    figures = policy_figures(blocks, 0.5)
    assert figures["reaction_s"] == 3.0
    assert figures["direction_changes"] == 3
    assert figures["weight_changes_quiet"] == 3
    assert figures["verdicts"] == {"cpu": 6}
    never = policy_figures([*blocks, block(9.0, reaction=reaction(None, 0))], 0.5)
    assert never["reaction_s"] is None


@pytest.mark.parametrize("name", ["quiet", "contended", "recovered"])
def test_phases_follow_each_other(name: str) -> None:
    first_s, last_s = PHASES.bounds()[name]
    assert last_s - first_s == 10.0
