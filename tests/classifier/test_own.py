"""The classes of one's own doing: from signals of the tenant's own, and from nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.classifier import own
from dial.classifier.deferral import LEAST_EXCESS
from dial.types import Cause, Measured, NoData

SILENT = NoData("no agent")
OWN = tuple(own.FEATURES)
fractions = st.floats(0.0, 1.0)


def named(
    excesses: dict[Cause, float],
    lost: Measured,
    *,
    hardware: bool,
    used: Measured = SILENT,
    least: float = 0.15,
) -> Cause | None:
    found: dict[str, Measured] = dict.fromkeys(own.FEATURES.values(), SILENT)
    found |= {own.FEATURES[cause]: excess for cause, excess in excesses.items()}
    return own.own_cause(found, lost, used, hardware=hardware, least_rho_bg=least)


def test_what_is_ones_own_doing_are_these_three() -> None:
    assert {cause for cause in Cause if cause.is_own_doing} == set(OWN)
    assert set(own.WHY) == set(own.ENDED) == set(OWN)
    assert not any(cause.is_contention for cause in OWN)
    assert all(cause.costs_capacity for cause in OWN)


@given(fractions, st.booleans(), fractions)
def test_without_a_signal_it_is_none_of_them(lost, hardware, least) -> None:
    assert named({}, lost, hardware=hardware, least=least) is None


@given(st.floats(0.0, LEAST_EXCESS, exclude_max=True), fractions, st.booleans())
def test_waiting_that_the_goal_tolerates_is_never_the_class(waits, lost, hardware) -> None:
    assert named({Cause.INTRA_APP: waits}, lost, hardware=hardware) is None


@pytest.mark.parametrize("cause", OWN)
@pytest.mark.parametrize(
    ("excess", "lost", "hardware", "expected"),
    [
        (0.4, 0.6, False, True),  # 0.33 is left over, but no hardware shows anything
        (0.4, 0.6, True, False),  # a third of the capacity is not explained by it
        (0.55, 0.6, True, True),  # 1 - 0.4/0.45 = 0.11: less than is worth moving load for
        (0.4, SILENT, True, False),  # what is lost is not known: the tree's word stands
        (0.4, SILENT, False, True),
    ],
)
def test_hardware_that_the_tree_names_is_excused_only_if_it_is_explained(
    cause, excess, lost, hardware, expected
) -> None:
    assert named({cause: excess}, lost, hardware=hardware) is (cause if expected else None)


def test_the_largest_of_them_names_the_class() -> None:
    both = {Cause.OWN_SERVICES: 0.3, Cause.SOFTIRQ: 0.4}
    assert named(both, 0.4, hardware=True) is Cause.SOFTIRQ


def test_a_cpu_that_the_vm_itself_uses_up_leaves_no_room_for_a_neighbour() -> None:
    # 1 - 0.1/0.6 = 0.83 is not explained, but 0.95 of the CPU is the VM's own use.
    assert named({Cause.OWN_SERVICES: 0.4}, 0.9, hardware=True, used=0.95) is Cause.OWN_SERVICES
    assert named({Cause.OWN_SERVICES: 0.4}, 0.9, hardware=True, used=0.5) is None
    # Who waits for a lock uses nothing meanwhile, so that proves nothing of locks.
    assert named({Cause.INTRA_APP: 0.4}, 0.9, hardware=True, used=0.95) is None


@given(st.sampled_from(OWN), fractions, fractions, fractions)
def test_no_more_is_left_over_than_is_lost(cause, lost, excess, used) -> None:
    assert 0.0 <= own.left_over(cause, lost, excess, used) <= lost + 1e-12


def test_a_vm_asks_for_more_the_longer_its_targets_are_missed() -> None:
    # 0.2 a minute, half of the load at most.
    missed_s = np.array([0.0, 90.0, 1e6, np.nan])
    assert own.asked_part(missed_s).tolist() == pytest.approx([0.0, 0.3, 0.5, 0.0])
