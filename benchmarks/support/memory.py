"""How much memory this process has."""

from __future__ import annotations

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def rss_mib() -> float:
    """Resident now, in MiB."""
    pages = int(_STATM.read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
