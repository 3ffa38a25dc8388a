"""Skips these tests where there is no HAProxy to put the product in front of."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(autouse=True, scope="session")
def haproxy() -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("no haproxy program here: install HAProxy 2.4 or newer")
