"""The library, built from this checkout, and a domain of its own for each test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dial_pbox
from dial_pbox.activities import POOL
from dial_pbox.library import LIBRARY_VARIABLE

PBOX = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def libpbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the library; built here, so that it is of these very sources."""
    built = tmp_path_factory.mktemp("libpbox") / "libpbox.so.1"
    sources = sorted(str(path) for path in (PBOX / "src").glob("*.c"))
    argv = ["cc", "-std=c11", "-O2", "-fPIC", "-shared", "-D_GNU_SOURCE", "-pthread"]
    argv += [f"-I{PBOX / 'include'}", f"-I{PBOX / 'src'}", *sources, "-o", str(built), "-lm"]
    subprocess.run(argv, check=True)
    os.environ[LIBRARY_VARIABLE] = str(built)
    return built


@pytest.fixture
def page(libpbox: Path, tmp_path: Path) -> Iterator[Path]:
    """A domain that only measures, and its page."""
    path = tmp_path / "pbox.page"
    dial_pbox.open_domain(mode=dial_pbox.Mode.MEASURE, page=path)
    yield path
    POOL.clear()
    dial_pbox.close_domain()
