"""Programs that let cores not rest."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dial_lab import restless
from dial_lab.processes import Children

WITHIN_S = 30.0


def test_each_core_has_one_that_only_runs_while_nobody_else_does_there(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    with Children(tmp_path) as children:
        programs = restless.start(children, cores)
        until_s = time.monotonic() + WITHIN_S
        while any(os.sched_getscheduler(each.pid) != os.SCHED_IDLE for each in programs):
            children.check()
            assert time.monotonic() < until_s
            time.sleep(0.05)
        assert [os.sched_getaffinity(each.pid) for each in programs] == [{core} for core in cores]
    assert all(each.poll() is not None for each in programs)
