"""Isolation figures: the paper's own, and those of blocks worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dial_lab.isolation import Isolation, figures
from dial_lab.loadgen import Results
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult
from dial_lab.scenarios import scenario

PAPER = {
    0.0: 0.936,
    0.1: 0.920,
    0.2: 0.897,
    0.3: 0.875,
    0.4: 0.860,
    0.5: 0.847,
    0.6: 0.826,
    0.7: 0.788,
    0.8: 0.722,
    0.9: 0.625,
}
"""Table 3 of Volpert et al.; its last row, 0.95 and 0.568, is not among the equidistant ones."""


def test_the_figures_of_the_paper_come_out() -> None:
    assert Isolation.of(list(PAPER), list(PAPER.values())).i_avg == pytest.approx(0.83, abs=0.005)
    with_last = PAPER | {0.95: 0.568}
    found = Isolation.of(list(with_last), list(with_last.values()))
    assert found.i_max == pytest.approx(0.60, abs=0.005)
    assert found.i_plr[-1] == 0.432


def test_least_with_no_neighbour_is_no_isolation_to_speak_of() -> None:
    assert Isolation.of([0.0, 1.0], [0.9, 1.0]).i_max is None


def test_a_policy_is_measured_against_its_own_quiet_phase() -> None:
    """Ten requests a second: 10 ms when quiet, then 10, 20 and 40 ms; the last step loses half."""
    intended_s = np.arange(0, 400) / 10
    step = np.digitize(intended_s, [10.0, 20.0, 30.0])
    status = np.where((step == 3) & (np.arange(400) % 2 == 0), 503, 200).astype(np.int16)
    results = Results(
        intended_s,
        np.zeros(400),
        np.array([10.0, 10.0, 20.0, 40.0])[step],
        status,
        np.zeros(400, dtype=np.int16),
        ("s1",),
    )
    block = BlockResult("dial", Phases(10.0, 30.0, 0.0), results, None)
    found = figures((0.0, 0.5, 1.0), [block], 90.0)
    assert found["p90"] == {
        "i_plr": [0.0, 0.5, 0.75],
        "i_avg": pytest.approx((1.0 + 0.5 + 0.25) / 3, abs=1e-4),
        "i_max": 0.25,
    }
    assert found["throughput"]["i_plr"] == pytest.approx([0.0, 0.0, 0.5], abs=0.02)


def test_the_ramp_has_equal_steps_one_after_the_other() -> None:
    harmony = scenario("harmony")
    assert harmony.steps == pytest.approx([0.1 * step for step in range(11)])
    assert [visit.part for visit in harmony.visits] == list(harmony.steps[1:])
    for before, after in zip(harmony.visits, harmony.visits[1:], strict=False):
        assert before.end == after.begin
    assert (harmony.visits[0].begin, harmony.visits[-1].end) == (pytest.approx(1 / 11), 1.0)
