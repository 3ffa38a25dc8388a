"""What the drills count, by hand."""

from __future__ import annotations

import pytest

from benchmarks.support.arms import Answer, Seen


def test_what_was_sent_in_the_period_counts_and_a_failure_is_in_no_percentile() -> None:
    served = [Answer(at_s, latency_s, False) for at_s, latency_s in ((1.0, 0.1), (1.5, 0.3))]
    answers = [Answer(0.9, 9.0, False), *served, Answer(1.7, 9.0, True), Answer(2.0, 9.0, False)]
    seen = Seen.of(answers, 1.0, 2.0)
    assert (seen.requests, seen.errors) == (3, 1)
    assert seen.p90_ms == pytest.approx(100.0 + 0.9 * (300.0 - 100.0))
