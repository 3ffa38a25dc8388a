"""The way of a line between two cores, and the programs that keep them together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

import psutil
import pytest

from dial.errors import LabError
from dial_lab import one_cache, two_cores
from dial_lab.cgroups import Cgroups
from dial_lab.processes import Children
from dial_lab.resources.llc import LLC
from dial_lab.topology import RESTLESS, Machine
from dial_lab.two_cores import APART_NS, keep_busy, keep_together

T = TypeVar("T")

needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="two cores are needed"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="coming first on a core takes root")


def within_a_minute(condition: Callable[[], T]) -> T:
    until_s = time.monotonic() + 60.0
    while not (found := condition()) and time.monotonic() < until_s:
        time.sleep(0.01)
    return found


def programs() -> list[psutil.Process]:
    """Those that watch cores, of all that this process may have started."""
    here = psutil.Process().children()
    return [each for each in here if "dial_lab.two_cores" in each.cmdline()]


def started_by(program: psutil.Process) -> list[psutil.Process]:
    """Who answers, and one that keeps each core busy, once all three are there."""
    assert within_a_minute(lambda: len(program.children()) == 3)
    return list(program.children())


def has_ended(process: psutil.Process) -> bool:
    """Whether it runs no more; who reaps it is another matter."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class Lines:
    """A memory whose words lead through all lines."""

    def __init__(self) -> None:
        self._next = dict(two_cores._chain())
        self.read: list[int] = []

    def __getitem__(self, word: int) -> int:
        self.read.append(word)
        return self._next[word]


def test_a_pass_reads_each_line_once() -> None:
    memory = Lines()
    assert two_cores._pass_ns(memory) > 0
    assert len(memory.read) == len(set(memory.read)) == two_cores._LINES


class Cores:
    """Two cores that note what is asked of them."""

    def __init__(self) -> None:
        self.woken_s: list[float] = []

    def wake_each_other(self, seconds: float) -> None:
        self.woken_s.append(seconds)


@pytest.mark.parametrize(
    ("way_ns", "busy"), [(3.0, b"x"), (APART_NS - 0.1, b"x"), (APART_NS, b""), (120.0, b"")]
)
def test_cores_that_are_together_do_not_rest_and_others_wake_each_other(
    monkeypatch: pytest.MonkeyPatch, way_ns: float, busy: bytes
) -> None:
    monkeypatch.setattr(two_cores, "EVERY_S", 0.0)
    cores, pipes = Cores(), [os.pipe(), os.pipe()]
    try:
        keep_together(cores, [tell for _, tell in pipes], way_ns)
        for told, _ in pipes:
            os.set_blocking(told, False)
            assert (os.read(told, 9) if busy else b"") == busy
            with pytest.raises(BlockingIOError):
                os.read(told, 1)
    finally:
        for end in (end for pipe in pipes for end in pipe):
            os.close(end)
    assert cores.woken_s == ([] if busy else [0.0])


def test_a_core_that_nothing_keeps_from_resting_any_more_is_an_error() -> None:
    told, tell = os.pipe()
    os.close(told)
    try:
        with pytest.raises(LabError, match="keeps a core from resting has ended"):
            keep_together(Cores(), [tell], 3.0)
    finally:
        os.close(tell)


def test_what_a_child_fails_of_is_printed_and_it_ends(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise LabError("llc: of this")

    child = two_cores._start(fail)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert "llc: of this" in capfd.readouterr().err


@needs_two_cores
@needs_root
def test_a_line_takes_some_nanoseconds_from_core_to_core_and_nothing_is_left_running(
    tmp_path: Path,
) -> None:
    machine = Machine("s1", max(os.sched_getaffinity(0)), Cgroups(tmp_path, False, ()))
    group = tmp_path / RESTLESS
    group.mkdir(parents=True)
    out = tmp_path / f"cores-{machine.other_cores[-1]}-{machine.core}.txt"

    def ways_ns() -> list[float]:
        return [float(line.split()[1]) for line in out.read_text().split("\n")[:-1]]

    with Children(tmp_path) as children, one_cache.watching(children, LLC, machine) as watch:
        assert watch is not None

        def measured() -> bool:
            children.check()
            return len(ways_ns()) >= 4

        assert within_a_minute(measured)
        (program,) = programs()
        started = started_by(program)
    # Of two threads of one core it is next to nothing, by chance less; 2 us are no cache's.
    assert -20.0 < median(ways_ns()) < 2000.0
    assert (group / "cgroup.procs").read_text() in {str(each.pid) for each in started}
    assert within_a_minute(lambda: all(map(has_ended, started)))


@needs_two_cores
@needs_root
def test_nothing_is_left_running_when_the_program_is_killed(tmp_path: Path) -> None:
    machine = Machine("s1", max(os.sched_getaffinity(0)), Cgroups(tmp_path, False, ()))
    (tmp_path / RESTLESS).mkdir(parents=True)
    with Children(tmp_path) as children, one_cache.watching(children, LLC, machine):
        # Asked again it may be none: launched, it has no command line while it becomes what it is.
        (program,) = within_a_minute(programs)
        started = started_by(program)
        program.kill()
        assert within_a_minute(lambda: all(map(has_ended, started)))
        with pytest.raises(LabError, match="ended with code -9"):
            children.check()


def test_what_keeps_a_core_busy_does_so_for_a_moment_and_while_nothing_else_runs(
    tmp_path: Path,
) -> None:
    core = max(os.sched_getaffinity(0))
    tell = keep_busy(core, [tmp_path / "cgroup.procs"])
    process = psutil.Process(int((tmp_path / "cgroup.procs").read_text()))

    def used_s() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    def is_waiting() -> bool:
        return bool(process.status() == psutil.STATUS_SLEEPING)

    def busy_s() -> float:
        """CPU time that it takes when it is told three times at once, which is once."""
        before_s = used_s()
        os.write(tell, b"xxx")
        time.sleep(two_cores.EVERY_S)
        assert within_a_minute(is_waiting)
        return used_s() - before_s

    try:
        assert within_a_minute(lambda: os.sched_getscheduler(process.pid) == os.SCHED_IDLE)
        assert process.cpu_affinity() == [core]
        assert within_a_minute(is_waiting)
        # Whoever else is on the core comes first, for as long as that takes.
        assert within_a_minute(lambda: 0.05 <= busy_s() <= 2.0 * two_cores.EVERY_S)
    finally:
        os.close(tell)
        assert os.waitpid(process.pid, 0) == (process.pid, 0)
