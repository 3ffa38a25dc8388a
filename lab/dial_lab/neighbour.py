"""The hidden neighbour: stress-ng in a machine's ``bg`` group, capped there."""

from __future__ import annotations

import math
import subprocess

from dial_lab.processes import Children
from dial_lab.topology import Machine

_MARGIN_S = 30.0
"""By how much stress-ng's own time limit exceeds what is asked: a limit, not a clock."""


def start_cpu(
    children: Children, machine: Machine, rho_bg: float, at_most_s: float
) -> subprocess.Popen[bytes]:
    """Start a CPU-bound neighbour that takes ``rho_bg`` of ``machine``; stop it by ``children``.

    Parameters
    ----------
    children
        Whose program it becomes.
    machine
        The victim's.
    rho_bg
        Share of the machine, 0 < rho_bg <= 1.
    at_most_s
        After this time (and a margin) it ends by itself, whatever becomes of the lab.
    """
    machine.cap_neighbour(rho_bg)
    timeout_s = math.ceil(at_most_s + _MARGIN_S)
    return children.start(
        "neighbour",
        ["stress-ng", "--quiet", "--cpu", "1", "--timeout", f"{timeout_s}s"],
        cores=[machine.core],
        join=machine.neighbour_files(),
    )
