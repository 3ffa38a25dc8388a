"""What the lab's tests share: real machines, calm moments, an interpreter for the rivals."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import TypeVar

import pytest

from dial.errors import LabError
from dial_lab.cgroups import Cgroups
from dial_lab.topology import exclusive, host_cgroups


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    try:
        found = host_cgroups()
        with exclusive():
            yield found
    except LabError as error:
        pytest.skip(str(error))


Found = TypeVar("Found")


_TRIES, _CALM_TRIES = 6, 2

_MOST_STEAL = 0.01
"""Of the processors' time.  Quiet: 0 to 0.005."""

_MOST_SLOWDOWN = 1.1
"""Of a loop, over its fastest; 1.02 quiet.  A core's other thread takes up to a third, unseen."""


class Watched:
    """What others take of this computer from now on."""

    fastest_s = math.inf
    """That the loop ever took."""

    def __init__(self) -> None:
        self._stolen, self._all = _processor_time()
        self._before_s = self._loop_s()

    def disturbance(self) -> str | None:
        """In words, if there was one."""
        slowdown = max(self._before_s, self._loop_s()) / Watched.fastest_s
        stolen, everything = _processor_time()
        steal = (stolen - self._stolen) / max(everything - self._all, 1)
        if steal <= _MOST_STEAL and slowdown <= _MOST_SLOWDOWN:
            return None
        return f"{steal:.1%} stolen, a loop {slowdown:.2f} times as long as its fastest"

    @staticmethod
    def _loop_s() -> float:
        """The median of some, which one interruption does not change."""
        took_s = []
        for _ in range(9):
            begin_s = time.perf_counter()
            sum(range(200_000))
            took_s.append(time.perf_counter() - begin_s)
        Watched.fastest_s = min(Watched.fastest_s, *took_s)
        return median(took_s)


def _processor_time() -> tuple[int, int]:
    """Stolen, and altogether, of all processors since the start, in ticks."""
    first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(field) for field in first.split()[1:9]]
    return ticks[7], sum(ticks)


@pytest.fixture
def in_a_calm_moment() -> Callable[[Callable[[], Found], object], Found]:
    """Measures until it finds what is expected, and gives what it found last.

    Who else uses this computer takes from it for seconds at a time, or for minutes.  A lab that is
    wrong is wrong each time, and in calm moments too: without two of them the test is skipped, and
    says so.  An error of the lab (an application that stood still) is a finding like others.
    """

    def until_calm(measure: Callable[[], Found], expected: object) -> Found:
        disturbances: list[str] = []
        for tried in range(1, _TRIES + 1):
            watched = Watched()
            failure: LabError | None = None
            try:
                found = measure()
            except LabError as error:
                failure = error
            disturbance = watched.disturbance()
            if disturbance is not None:
                disturbances.append(disturbance)
            last = tried - len(disturbances) == _CALM_TRIES
            if failure is not None and last:
                raise failure
            if failure is None and (found == expected or last):
                return found
            time.sleep(3.0)
        pytest.skip(f"this computer is too busy to measure: {'; '.join(disturbances)}")

    return until_calm


@pytest.fixture
def lua(tmp_path: Path) -> Callable[..., list[str]]:
    """Gives the lines that a script prints, run by HAProxy, which brings its own interpreter.

    The script is the first argument; others, by name, are its environment.
    """

    def run(text: str, **environment: str) -> list[str]:
        script, config = tmp_path / "test.lua", tmp_path / "haproxy.cfg"
        script.write_text(text, encoding="utf-8")
        config.write_text(f"global\n    lua-load-per-thread {script}\n", encoding="utf-8")
        ran = subprocess.run(
            ["haproxy", "-c", "-f", config],
            capture_output=True,
            text=True,
            check=False,
            timeout=60.0,
            env={**os.environ, **environment},
        )
        assert "runtime error" not in ran.stderr, ran.stderr
        return [line for line in ran.stdout.splitlines() if not line.startswith("Configuration")]

    return run
