"""Whatever a kernel prints, a parser answers or says ``Unavailable``: nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.agent.capacity import parse_cpu_list
from dial.agent.cgroups import parse_mountinfo
from dial.agent.counters import growth, parse_keyed
from dial.agent.cpu import parse_stat
from dial.agent.disk import parse_diskstats, parse_io_stat, parse_service_bytes
from dial.agent.files import Unavailable
from dial.agent.network import parse_interfaces, parse_tcp
from dial.agent.pressure import parse_pressure
from dial.agent.run_queue import parse_cpu_delays, parse_task_delay
from dial.agent.self_cost import parse_statm
from dial.types import NoData

PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "stat": (parse_stat, "cpu  1 2 3 4 5 6 7 8 0 0\n"),
    "keyed": (lambda text: parse_keyed(text, "f"), "nr_periods 5\nnr_throttled 2\n"),
    "cpu_list": (parse_cpu_list, "0-3,8\n"),
    "mountinfo": (parse_mountinfo, "1 2 0:3 / /a\\040b rw - cgroup2 none rw\n"),
    "pressure": (lambda text: parse_pressure(text, "f"), "some avg10=0.00 total=5\n"),
    "tcp": (lambda text: parse_tcp(text, "f"), "Tcp: OutSegs RetransSegs\nTcp: 1 2\n"),
    "dev": (lambda text: parse_interfaces(text, "f"), "a\nb\n e: 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7"),
    "diskstats": (parse_diskstats, " 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n"),
    "service_bytes": (lambda text: parse_service_bytes(text, "f"), "8:0 Read 5\nTotal 5\n"),
    "io_stat": (lambda text: parse_io_stat(text, "f"), "8:0 rbytes=5 wbytes=2\n"),
    "task_delay": (lambda text: parse_task_delay(text, "f"), "1 2 3\n"),
    "cpu_delays": (parse_cpu_delays, "cpu0 1 2 3 4 5 6 7 8 9\n"),
    "statm": (lambda text: parse_statm(text, 4096), "1 2 3 4\n"),
}


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_malformed_text_is_unavailable_and_nothing_else(name: str, data: st.DataObject) -> None:
    parse, good = PARSERS[name]
    parse(good)
    cut = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(cut, len(good)))
    text = data.draw(st.text(max_size=40) | st.text("0123456789 -=:\nTcpu", max_size=40))
    with suppress(Unavailable):
        parse(good[:cut] + text + good[end:])


@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_growth_is_never_negative(before: int, after: int) -> None:
    added = growth(before, after)
    assert isinstance(added, NoData) if after < before else added == after - before
