"""Whose CPU or disk surely gives less, by any of three witnesses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dial.controller.comparison import Comparison
from dial.controller.judge import _resource_witnesses
from dial.controller.policy import Policy
from dial.estimator import RhoBg
from dial.types import NoData

SURE = Comparison(RhoBg(0.4, 0.01), RhoBg(0.0, 0.0))
UNSURE = Comparison(RhoBg(0.4, 0.3), RhoBg(0.0, 0.0))
NOTHING = NoData("no interval")


def says(one, over):
    """A witness that says so of s2 over so many intervals, and of others nothing."""

    def beside(rows, intervals):
        asked = zip(rows.tolist(), intervals.tolist(), strict=True)
        return [one if (row, n) == (1, over) else UNSURE for row, n in asked]

    return beside


@pytest.mark.parametrize("over", [1, 2, 6], ids=["newest", "two", "since-calm"])
@pytest.mark.parametrize("who", ["by_cpu_time", "by_cpu_wait", "by_disk_wait"])
def test_one_witness_that_is_sure_is_enough_whatever_the_others_say(policy_source, who, over):
    witnesses = dict.fromkeys(("by_cpu_time", "by_cpu_wait", "by_disk_wait"), says(NOTHING, over))
    groups = SimpleNamespace(**witnesses | {who: says(SURE, over)})
    known = SimpleNamespace(uneasy_intervals=np.array([0, 5, 0]))
    slow = np.full(3, 0.4)
    looks = SimpleNamespace(read=SimpleNamespace(slowdown=1.0 / (1.0 - slow), wait=slow, disk=slow))
    policy = Policy.of(policy_source)
    for where in ([True, True, True], [True, False, True]):
        found = _resource_witnesses(policy, known, looks, groups, where=np.array(where))
        assert found.tolist() == [False, where[1], False]
