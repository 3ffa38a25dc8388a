"""Who may import what, read from the source: arithmetic stays arithmetic."""

import ast
import sys
from pathlib import Path

import pytest

import dial

ROOT = Path(dial.__file__).parent
FOUNDATION = ("types", "rows", "errors", "clock")
ARITHMETIC = ("detector", "classifier", "estimator", "optimizer")
BESIDE_STANDARD = {
    "numpy",
    "scipy",
    "dial.types",
    "dial.errors",
    "dial.queueing",
    "dial.columns",
}


def imports_of(source: str) -> set[str]:
    """Full names of the modules that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports would slip past these rules"
            found.add(node.module)
    return found


def outside_standard_library(path: Path) -> set[str]:
    names = imports_of(path.read_text(encoding="utf-8"))
    return {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}


def within(name: str, allowed: set[str]) -> bool:
    return any(name == one or name.startswith(one + ".") for one in allowed)


def test_the_rule_sees_imports_wherever_they_stand():
    source = "import os\ndef f():\n    import numpy.linalg\n    from dial.adapter import Adapter\n"
    assert imports_of(source) == {"os", "numpy.linalg", "dial.adapter"}


@pytest.mark.parametrize("name", FOUNDATION)
def test_the_foundation_imports_the_standard_library_only(name):
    assert outside_standard_library(ROOT / f"{name}.py") <= {"dial.rows"}


@pytest.mark.parametrize("name", ["queueing", "columns"])
def test_what_arithmetic_rests_on_adds_numpy_and_scipy_only(name):
    found = outside_standard_library(ROOT / f"{name}.py")
    assert all(within(name, {"numpy", "scipy", "dial.types", "dial.errors"}) for name in found)


@pytest.mark.parametrize("package", ARITHMETIC)
def test_arithmetic_imports_numpy_scipy_and_the_foundation_only(package):
    modules = sorted((ROOT / package).rglob("*.py"))
    assert len(modules) > 1
    own = f"dial.{package}"
    for module in modules:
        found = outside_standard_library(module)
        foreign = {name for name in found if not within(name, BESIDE_STANDARD | {own})}
        assert foreign == set(), f"{module.relative_to(ROOT)} imports {foreign}"


@pytest.mark.parametrize("package", ARITHMETIC)
def test_arithmetic_reads_neither_clock_nor_file_nor_chance(package):
    forbidden = {"time", "datetime", "random", "os", "io", "pathlib", "socket", "numpy.random"}
    for module in sorted((ROOT / package).rglob("*.py")):
        assert not imports_of(module.read_text(encoding="utf-8")) & forbidden, module
