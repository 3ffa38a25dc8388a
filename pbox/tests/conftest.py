"""The C library and its programs, built from this checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.support.pbox import build


@pytest.fixture(scope="session")
def plain() -> Path:
    """Without sanitizers."""
    return build()
