"""Ports of what tests and the lab start."""

from __future__ import annotations

from dial.ports import CHOSEN_PORTS, free_port


def test_a_port_that_nobody_binds_is_not_chosen_again_until_all_others_were() -> None:
    taken = [free_port() for _ in range(1000)]
    assert len(set(taken)) == 1000
    assert set(taken) <= set(CHOSEN_PORTS)
