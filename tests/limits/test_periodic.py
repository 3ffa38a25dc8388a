from __future__ import annotations

import time
from threading import Event

import pytest

from dial.errors import LimitError
from dial.limits.journal import Journal, Limits
from dial.limits.knobs import CpuMax
from dial.limits.limiter import Limiter
from dial.limits.periodic import acting
from tests.hosts import Host

WITHIN_S = 20.0


class Part:
    """Fails in its second look, if it is told how."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.looks = 0
        self.looked = Event()
        self.done: list[str] = []
        self.ended = Event()

    def begin(self) -> None:
        self.done.append("begin")

    def once(self) -> None:
        self.looks += 1
        if self.looks == 2:
            self.looked.set()
            if self.failure is not None:
                raise self.failure

    def put_back(self) -> None:
        self.done.append("put back")
        self.ended.set()


def test_it_looks_again_and_again_and_puts_back_at_the_end() -> None:
    part = Part()
    with acting("part", part, 0.001, time.monotonic):
        assert part.looked.wait(WITHIN_S)
        assert part.done == ["begin"]
    assert part.done == ["begin", "put back"]


@pytest.mark.parametrize(
    ("failure", "told"),
    [(LimitError("cpu.max: no"), "part: cpu.max: no; it ends"), (KeyError(), "part: defect")],
)
def test_what_goes_wrong_ends_the_acting_and_not_the_agent(
    failure: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    part = Part(failure)
    with acting("part", part, 0.001, time.monotonic):
        assert part.ended.wait(WITHIN_S)
    assert part.done == ["begin", "put back"]
    assert part.looks == 2
    assert told in caplog.text


def test_what_was_there_is_recorded_once_and_before_it_is_changed(host: Host) -> None:
    host.with_v2()
    directory = "/sys/fs/cgroup/vm/web"
    limits = Limits(("/sys/fs/cgroup/vm",), str(host.root))
    journal = Journal.emptied(host.root / "journal", limits, print)
    limiter, knob = Limiter(limits, journal), CpuMax(host.tree, directory)
    assert limiter.set(knob, 0.5)
    recorded = journal.text()
    assert "max 100000" in recorded
    assert limiter.set(knob, 0.25)
    assert journal.text() == recorded
    assert not limiter.set(CpuMax(host.tree, "/sys/fs/cgroup/vm/gone"), 0.5)
    limiter.put_back()
    assert host.text(f"{directory}/cpu.max").startswith("max 100000")
