"""Our root qdisc on a network device, known again by its major number."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from dial.errors import LimitError

HANDLE = 0xD1A1
"""Major number of our qdisc, by which it is known again."""

_TC_TIMEOUT_S = 5.0


def root_handle(device: str) -> int:
    """Return the major number of the device's root qdisc; 0 for the kernel's own.

    Raises
    ------
    LimitError
        If tc is missing, or knows no such device.
    """
    for line in tc("qdisc", "show", "dev", device).splitlines():
        words = line.split()
        if "root" in words:
            return int(words[2].rstrip(":"), 16)
    return 0


def remove_qdisc(device: str) -> None:
    """Remove our root qdisc; one that is not ours stays, and none is well too.

    Raises
    ------
    LimitError
        If tc refuses.
    """
    if root_handle(device) == HANDLE:
        tc("qdisc", "del", "dev", device, "root")


def tc(*words: str) -> str:
    """Return what tc prints; raises :class:`~dial.errors.LimitError` with what it says."""
    command: Sequence[str] = ("tc", *words)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TC_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LimitError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise LimitError(f"{' '.join(command)}: {said[0] if said else done.returncode}")
    return done.stdout
