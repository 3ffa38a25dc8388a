"""What is kept of the ticks that are over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dial.controller import snapshot
from dial.controller.snapshot import HISTORY, LEAST_HISTORY, Publisher, Snapshot
from dial.types import Mode

FIRST = Snapshot("web", "fake", Mode.SHADOW, started_s=0.0, at_s=0.0)


@pytest.mark.parametrize(
    ("most", "kept"), [(3 * HISTORY, HISTORY), (3 * 40, 40), (1, LEAST_HISTORY)]
)
def test_of_many_backends_fewer_ticks_are_kept(make_service, monkeypatch, most, kept) -> None:
    monkeypatch.setattr(snapshot, "HISTORY_BACKENDS", most)
    observed = make_service().observe()
    assert len(observed.backends) == 3
    publisher = Publisher(FIRST)
    for tick in range(HISTORY + 20):
        publisher.publish(replace(FIRST, at_s=float(tick), observation=observed))
    assert len(publisher.history(2 * HISTORY)) == kept
    assert publisher.current.at_s == HISTORY + 19
