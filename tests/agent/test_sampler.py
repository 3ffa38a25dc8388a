from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dial.agent.files import Tree, Unavailable
from dial.agent.loop import next_deadline_s, run
from dial.agent.sampler import Sampler
from dial.agent.self_cost import SelfCost
from dial.agent.wire import encode, sample_fields
from dial.types import METRIC_NAMES, AgentSample, Measured, NoData


class Scripted:
    """A collector that reads what it is told, errors included."""

    def __init__(self, metric: str, *readings: int | Exception) -> None:
        self.metrics = (metric,)
        self._readings: Iterator[int | Exception] = iter(readings)

    def read(self) -> int:
        reading = next(self._readings)
        if isinstance(reading, Exception):
            raise reading
        return reading

    def rates(self, before: int, after: int, interval_s: float) -> Mapping[str, Measured]:
        return {self.metrics[0]: (after - before) / interval_s}


class Ticking:
    """A clock that moves by ``step_s`` each time it is looked at."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self._step_s = step_s

    def __call__(self) -> float:
        self.now_s += self._step_s
        return self.now_s


def test_one_failing_collector_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    sampler = Sampler(
        [
            Scripted("cpu_usr_cores", 1, Unavailable("gone"), 5, 8),
            Scripted("cpu_sys_cores", 1, ZeroDivisionError("oops"), 5, 8),
            Scripted("disk_bytes_per_s", 0, 4, 8, 12),
        ],
        {"cpu_steal_cores": NoData("not here")},
        lambda: 1.0,
        Ticking(0.25),  # four looks a sample (one for all, one each): 1 s between samples
    )
    with caplog.at_level(logging.ERROR):
        assert sampler.take() is None
        first, second, third = sampler.take(), sampler.take(), sampler.take()
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.cpu_usr_cores == NoData("gone")
    assert first.cpu_sys_cores == NoData("defect in the agent: ZeroDivisionError: oops")
    assert first.disk_bytes_per_s == 4.0
    assert first.cpu_steal_cores == NoData("not here")
    assert isinstance(first.agent_rss_mib, NoData)
    assert isinstance(second.cpu_usr_cores, NoData)  # one reading makes no rate
    assert third.cpu_usr_cores == 3.0
    assert [record.message for record in caplog.records] == ["Scripted failed"]


def test_own_cost_counts_every_nanosecond(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/statm").write_text("9999 5120 1 1 0 1 0\n")
    cpu_ns = iter([1_000_000, 3_000_000])
    cost = SelfCost(Tree(str(tmp_path)), 4096, cpu_ns.__next__)
    # 2 ms in 2 s; 5120 pages of 4 KiB = 20 MiB
    assert cost.rates(cost.read(), cost.read(), 2.0) == {
        "agent_cpu_cores": 0.001,
        "agent_rss_mib": 20.0,
    }


@pytest.mark.parametrize(
    ("now_s", "deadline_s"),
    [(10.0, 10.5), (10.49, 10.5), (10.5, 11.0), (13.2, 13.5)],
)
def test_deadlines_are_multiples_and_missed_ones_are_skipped(
    now_s: float, deadline_s: float
) -> None:
    assert next_deadline_s(10.0, 0.5, now_s) == deadline_s


@pytest.mark.parametrize("phase", [0.0, 0.25])
def test_the_cadence_begins_at_its_phase_and_does_not_drift_by_the_time_a_sample_takes(
    phase: float,
) -> None:
    now_s = 0.0
    taken: list[float] = []

    def monotonic_s() -> float:
        return now_s

    def stopped(timeout_s: float) -> bool:
        nonlocal now_s
        now_s += timeout_s
        return len(taken) == 5

    def deliver(sample: AgentSample) -> None:
        nonlocal now_s
        taken.append(now_s)
        now_s += 2.3 if len(taken) == 3 else 0.3  # a sample takes long; the third stalls

    sampler = Sampler([], {}, monotonic_s, monotonic_s)
    run(sampler, deliver, 1.0, monotonic_s, stopped, phase=phase)
    # the first reading makes no sample; after the third, at 3.0, it is 5.3: 4 and 5 are skipped
    assert taken == pytest.approx([phase + at_s for at_s in (1.0, 2.0, 3.0, 6.0, 7.0)])


def test_who_is_told_to_stop_before_the_first_reading_takes_none() -> None:
    waited: list[float] = []

    def stopped(timeout_s: float) -> bool:
        waited.append(timeout_s)
        return True

    def monotonic_s() -> float:
        raise AssertionError("a reading was taken")

    sampler = Sampler([], {}, monotonic_s, monotonic_s)
    run(sampler, lambda _: None, 2.0, monotonic_s, stopped, phase=0.75)
    assert waited == [1.5]


def test_the_wire_carries_every_metric_and_reasons_of_one_short_line() -> None:
    metrics: dict[str, Measured] = dict.fromkeys(METRIC_NAMES, 0.5)
    metrics["cpu_steal_cores"] = NoData("a\nb" + "x" * 500)
    fields = sample_fields(AgentSample(at_s=1.0, interval_s=2.0, **metrics))
    assert fields["at_s"] == 1.0
    wired = fields["metrics"]
    assert isinstance(wired, dict)
    assert tuple(wired) == METRIC_NAMES
    assert wired["cpu_steal_cores"] == {"no_data": "a b" + "x" * 197}


def test_nan_never_reaches_the_wire() -> None:
    metrics: dict[str, Measured] = dict.fromkeys(METRIC_NAMES, float("nan"))
    with pytest.raises(ValueError, match="JSON compliant"):
        encode("s1", "h:1", [AgentSample(at_s=1.0, interval_s=1.0, **metrics)])
