"""The case on a real PostgreSQL, and its server."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

_CASE = Path(__file__).parents[2] / "pbox" / "cases" / "select_for_update.py"


@pytest.fixture(scope="session")
def case() -> ModuleType:
    """The program of the case, as a module."""
    spec = importlib.util.spec_from_file_location("select_for_update", _CASE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and the like look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def postgres(case: ModuleType) -> Iterator[object]:
    """A server of our own."""
    try:
        with case.server() as running:
            yield running
    except case.NoPostgres as error:
        pytest.skip(str(error))
