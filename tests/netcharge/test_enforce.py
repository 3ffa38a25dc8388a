from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from dial.agent.files import Tree
from dial.errors import SettingError
from dial.limits.journal import Journal, Limits
from dial.limits.knobs import CpuMax
from dial.limits.limiter import Limiter
from dial.netcharge.enforce import Charged, Enforcer
from dial.netcharge.ingress import Ingress
from dial.netcharge.settings import parse_settings
from dial.netcharge.softirq import Counts, Packets, Softirqs

MS = 1_000_000


class Kernel:
    """Softirqs, ports and clocks that the test turns by hand."""

    def __init__(self, tmp_path: Path) -> None:
        self.now_s = 0.0
        self.used_ns = {"web": 0, "sink": 0}
        self.counts = Counts(
            0,
            0,
            dict.fromkeys(self.used_ns, 0),
            {n: Packets(0, 0) for n in self.used_ns},
            Packets(0, 0),
            (0,),
            (0,),
            {"web": (0,), "sink": (0,)},
        )
        self.ticks_ns = (0,)
        self.closed: list[str] = []
        self.ended = False
        self.root = tmp_path
        for name in self.used_ns:
            (tmp_path / "vm" / name).mkdir(parents=True)
            (tmp_path / "vm" / name / "cpu.max").write_text("50000 100000")

    def read(self) -> Counts:
        return self.counts

    def close_for(self, names: Any) -> None:
        self.closed = list(names)

    def close(self) -> None:
        self.ended = True

    def used(self, name: str) -> Callable[[], int]:
        return lambda: self.used_ns[name]

    def quota(self, name: str) -> str:
        return (self.root / "vm" / name / "cpu.max").read_text()

    def passes(
        self,
        *,
        sink_packets: int,
        softirq_ms: int,
        in_web_ms: int = 0,
        runs: int = 0,
        ticks_ms: int | None = None,
    ) -> None:
        """0.2 s in which both use their 0.5 core."""
        self.now_s += 0.2
        for name in self.used_ns:
            self.used_ns[name] += 100 * MS
        was = self.counts
        got = was.packets["sink"].received + sink_packets
        self.counts = replace(
            was,
            receiving_ns=was.receiving_ns + softirq_ms * MS,
            context_ns={"web": was.context_ns["web"] + in_web_ms * MS, "sink": 0},
            packets={"web": Packets(0, 0), "sink": Packets(got, 0)},
            all_packets=Packets(got, 0),
            timed_ns=(was.timed_ns[0] + softirq_ms * MS,),
            runs=(was.runs[0] + runs,),
            interruptions={"web": (was.interruptions["web"][0] + runs // 2,), "sink": (0,)},
        )
        ticks_ms = softirq_ms if ticks_ms is None else ticks_ms
        self.ticks_ns = (self.ticks_ns[0] + ticks_ms * MS,)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.fixture
def enforcer(kernel: Kernel) -> Enforcer:
    root = str(kernel.root)
    limits = Limits([f"{root}/vm"])
    journal = Journal.emptied(kernel.root / "journal", limits, lambda device: None)
    groups = {
        name: Charged(0.5, CpuMax(Tree(), f"{root}/vm/{name}"), kernel.used(name))
        for name in kernel.used_ns
    }
    made = Enforcer(
        groups,
        cast("Softirqs", kernel),
        cast("Ingress", kernel),
        Limiter(limits, journal),
        softirq_ns=lambda cpus: kernel.ticks_ns,
        context_is_accounted=True,
        monotonic_s=lambda: kernel.now_s,
    )
    made.begin()
    return made


def test_without_packets_no_quota_is_written(kernel: Kernel, enforcer: Enforcer) -> None:
    kernel.passes(sink_packets=0, softirq_ms=0)
    enforcer.once()
    assert kernel.quota("web") == kernel.quota("sink") == "50000 100000"


def test_who_is_flooded_pays_and_who_was_interrupted_gets_it_back(
    kernel: Kernel, enforcer: Enforcer
) -> None:
    # 40 ms of 100 for the sink's packets, half of them done by web.
    kernel.passes(sink_packets=1000, softirq_ms=40, in_web_ms=20)
    enforcer.once()
    assert kernel.quota("sink") == "3000 10000"
    kernel.passes(sink_packets=0, softirq_ms=0)
    enforcer.once()
    # 20 ms were gained by web: 120 ms of 200.
    assert kernel.quota("web") == "6000 10000"


def test_what_interrupts_cost_around_their_softirqs_is_charged_too(
    kernel: Kernel, enforcer: Enforcer
) -> None:
    # 20 ms of softirqs were timed and 60 ticked: 20 us more for each of 2000, half of them in web.
    kernel.passes(sink_packets=1000, softirq_ms=20, in_web_ms=10, runs=2000, ticks_ms=60)
    enforcer.once()
    assert kernel.quota("sink") == "2000 10000"
    kernel.passes(sink_packets=0, softirq_ms=0)
    enforcer.once()
    # web gets back 10 ms of softirqs and 20 ms around them: 130 ms of 200.
    assert kernel.quota("web") == "6500 10000"


def test_packets_of_who_is_in_debt_are_dropped_until_it_is_paid(
    kernel: Kernel, enforcer: Enforcer
) -> None:
    kernel.passes(sink_packets=1000, softirq_ms=150)
    enforcer.once()
    assert kernel.closed == ["sink"]
    assert kernel.quota("sink") == "1000 1000000"  # the kernel's least
    kernel.used_ns["sink"] -= 100 * MS  # it is throttled
    kernel.passes(sink_packets=0, softirq_ms=0)
    enforcer.once()
    assert kernel.closed == []


def test_packets_stay_away_until_who_was_interrupted_has_run_for_what_it_lost(
    kernel: Kernel, enforcer: Enforcer
) -> None:
    kernel.passes(sink_packets=1000, softirq_ms=40, in_web_ms=20)
    enforcer.once()
    assert kernel.closed == ["sink"]  # not in debt, but web has 120 ms coming
    kernel.used_ns["web"] += 20 * MS
    kernel.passes(sink_packets=0, softirq_ms=0)
    enforcer.once()
    assert kernel.closed == []


def test_who_has_no_use_for_its_credit_keeps_nobody_away(
    kernel: Kernel, enforcer: Enforcer
) -> None:
    kernel.passes(sink_packets=1000, softirq_ms=40, in_web_ms=20)
    kernel.used_ns["web"] -= 60 * MS
    enforcer.once()
    assert kernel.closed == []


def test_the_end_puts_the_configured_quotas_back(kernel: Kernel, enforcer: Enforcer) -> None:
    kernel.passes(sink_packets=1000, softirq_ms=40)
    enforcer.once()
    enforcer.put_back()
    assert kernel.quota("sink") == "50000 100000"
    assert kernel.ended


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"subtree": "a/../b"}, "subtree"),
        ({"subtree": ""}, "subtree"),
        ({"journal": "x"}, "an absolute path"),
        ({"device": 1}, "device 1"),
        ({"services": {}}, "at least one"),
        ({"services": {"a/b": {}}}, "the name of a cgroup"),
        ({"services": {"a": {"port": 1}}}, "a table with ports"),
        ({"services": {"a": {"ports": [0]}}}, "1 to 65535"),
        ({"services": {"a": {"ports": [True]}}}, "1 to 65535"),
        ({"more": 1}, "'more': no such setting"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, object], told: str) -> None:
    right = {"subtree": "vm", "services": {"web": {}, "sink": {"ports": [5001]}}}
    assert parse_settings(right).ports == {"web": (), "sink": (5001,)}
    with pytest.raises(SettingError) as error:
        parse_settings({**right, **change})
    assert told in str(error.value)
