"""What a controller leaves to the next one: written in time, taken only where it fits."""

from __future__ import annotations

import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from dial.controller.checkpoint import QUIET_EVERY_S, Checkpoints, in_force, without_shift
from dial.controller.state import Backends, Known, Shift, State
from dial.handover import KeptFile
from dial.lease import Moment
from dial.settings import Settings

from .world import MemoryBalancer


class Clock:
    at_s = 500.0

    def __call__(self) -> Moment:
        return Moment("a boot", self.at_s)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(tmp_path, clock):
    def build(checksum="abc", **settings):
        of = Settings(**{"service": "app", "adapter": {"name": "x"}} | settings)
        return Checkpoints(KeptFile(tmp_path / "app.lease.state"), of, checksum, clock)

    return build


@pytest.fixture
def shifted(service) -> State:
    service.rho_bg["s1"] = 0.6
    service.run(6)
    assert service.state.shift is not None
    return service.state


def test_a_state_reads_back_equal(make, shifted, tmp_path):
    make().write(shifted, 26)
    assert make().load() == (shifted, 26)
    assert stat.S_IMODE((tmp_path / "app.lease.state").stat().st_mode) == 0o600


def test_a_state_after_an_interval_without_requests_reads_back_equal(make, shifted, service):
    service.arrival_per_s = 0.0
    service.run(1)
    make().write(service.state, 27)
    assert make().load() == (service.state, 27)


def test_there_is_an_empty_state_before_the_first(make):
    with capture_logs() as logs:
        assert make().load() == (State(), 0)
    assert logs == []


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        ({"service": "web"}, "service was 'app' and is 'web'"),
        ({"percentile": 99.0}, "percentile was 90.0 and is 99.0"),
        ({"checksum": "def"}, "model_checksum was 'abc' and is 'def'"),
        ({"lease": {"resume_s": 5.0}}, "7 s old, at most lease.resume_s = 5"),
    ],
)
def test_what_does_not_fit_is_not_taken_and_said_why(make, shifted, clock, theirs, why):
    make().write(shifted, 26)
    clock.at_s += 7.0
    with capture_logs() as logs:
        assert make(**theirs).load() == (State(), 0)
    assert [(line["log_level"], line["why"]) for line in logs] == [("warning", why)]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 3}', b"[" * 100_000])
def test_what_is_damaged_is_one_warning(make, tmp_path, content):
    (tmp_path / "app.lease.state").write_bytes(content)
    with capture_logs() as logs:
        assert make().load() == (State(), 0)
    assert [line["log_level"] for line in logs] == ["warning"]


@given(cut=st.integers(0, 10_000), put_in=st.binary(max_size=8))
def test_whatever_becomes_of_the_file_a_controller_starts(cut, put_in):
    with TemporaryDirectory() as directory:
        path = Path(directory) / "app.lease.state"
        settings = Settings(service="app", adapter={"name": "x"})
        checkpoints = Checkpoints(KeptFile(path), settings, "abc", Clock())
        backends = Backends(("s1",), Known.blank(1))
        checkpoints.write(State(backends, Shift({"s1": 1.0}, {"s1": 3})), 26)
        content = path.read_bytes()
        path.write_bytes(content[:cut] + put_in + content[cut + len(put_in) :])
        state, tick = checkpoints.load()
        assert isinstance(state, State)
        assert isinstance(tick, int)


def test_it_is_written_once_a_minute_when_a_shift_begins_and_then_as_often_as_it_is_cheap(
    make, shifted, clock
):
    checkpoints = make()
    written = []

    def write(state, tick, write=checkpoints.write):
        written.append(tick)
        write(state, tick)
        checkpoints._took_s = 0.003

    checkpoints.write = write
    quiet = without_shift(shifted)
    checkpoints.keep(quiet, 1)
    clock.at_s += QUIET_EVERY_S - 0.1
    checkpoints.keep(quiet, 2)
    clock.at_s += 0.1
    checkpoints.keep(quiet, 3)
    checkpoints.keep(shifted, 4)  # it begins
    clock.at_s += 0.3 - 0.01  # 3 ms may be spent every 0.3 s
    checkpoints.keep(shifted, 5)
    clock.at_s += 0.02
    checkpoints.keep(shifted, 6)
    assert written == [1, 3, 4, 6]


def test_a_disk_that_is_full_is_a_warning(make, shifted, tmp_path):
    (tmp_path / "app.lease.state").mkdir()
    with capture_logs() as logs:
        make().write(shifted, 26)
    assert [line["event"] for line in logs] == ["checkpoint not written"]


def test_without_the_shift_the_quiet_past_stays_and_nobody_is_in_contention(shifted):
    quiet = without_shift(shifted)
    assert "s1" in shifted.backends.contentions
    known, before = quiet.backends.known, shifted.backends.known
    assert before.cusum.evidence.any()
    assert quiet.shift is None
    assert (quiet.backends.contentions, quiet.backends.suspects) == ({}, {})
    assert not known.cusum.evidence.any()
    for learnt in ("baseline", "curve", "peak"):
        assert getattr(known, learnt) == getattr(before, learnt)
    assert np.array_equal(known.cusum.mean, before.cusum.mean)


async def test_a_shift_is_in_force_when_every_usable_server_has_its_weight(service, shifted):
    balancer = MemoryBalancer(service)
    assert in_force(shifted.shift, await balancer.read())
    service.weights["s1"] += 1
    assert not in_force(shifted.shift, await balancer.read())
    service.unusable.add("s1")  # what the admin took out is his
    assert in_force(shifted.shift, await balancer.read())
    assert in_force(Shift({}, {"gone": 3}), await balancer.read())
