"""The C library: its own tests, plain and under sanitizers, its page and its cases."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.support.pbox import CASES, build, run_json

_ROOT = Path(__file__).resolve().parents[2]
_C_TYPES = {"u16": 2, "u32": 4, "u64": 8, "f64": 8, "char[8]": 8, "char[24]": 24}


def test_the_librarys_own_tests_pass(plain):
    run_tests(plain)


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_sanitizers_find_nothing(sanitizer):
    run_tests(build(sanitize=sanitizer))


def run_tests(tree: Path) -> None:
    done = subprocess.run(
        ["ctest", "--test-dir", str(tree), "--output-on-failure"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"100% tests passed, 0 tests failed out of [1-9]", done.stdout), done.stdout


def test_the_documented_layout_of_the_page_is_the_compiled_one(plain):
    compiled = subprocess.run(
        [str(plain / "tests" / "pbox_layout")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert documented_layout() == compiled


def documented_layout() -> list[str]:
    lines, part = [], ""
    for line in (_ROOT / "docs" / "pbox-page.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            part = line.split()[1].rstrip(",").lower()
        row = re.match(r"\| (\d+) \| (\S+) \| ([\w.]+) \|", line)
        if row:
            lines.append(f"{part} {row[1]} {_C_TYPES[row[2]]} {row[3]}")
    return lines


def test_an_installed_library_is_found_through_pkg_config(plain, tmp_path):
    prefix = tmp_path / "prefix"
    run("cmake", "--install", str(plain), "--prefix", str(prefix))
    settings = next(prefix.rglob("pbox.pc"))
    settings.write_text(
        re.sub(r"^prefix=.*", f"prefix={prefix}", settings.read_text(), flags=re.MULTILINE)
    )
    program = tmp_path / "program.c"
    program.write_text(
        "#include <pbox.h>\n"
        "int main(void) { IsolationRule rule = {PBOX_RELATIVE, PBOX_AVERAGE, 50};\n"
        "  return create_pbox(rule) > 0 ? 0 : 1; }\n"
    )
    environment = os.environ | {"PKG_CONFIG_PATH": str(settings.parent)}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "pbox"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout.split()
    run("gcc", "-std=c11", "-Werror", str(program), "-o", str(tmp_path / "program"), *flags)
    library = str(next(prefix.rglob("libpbox.so")).parent)
    subprocess.run(
        [str(tmp_path / "program")], check=True, env=os.environ | {"LD_LIBRARY_PATH": library}
    )


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


_CLEARLY = 0.3
"""Of the interference; a library that does nothing comes to 0."""

_TRIES = 3
"""Of three rounds each: a computer may be too busy for any of them, once."""


@pytest.mark.parametrize("case", CASES)
def test_interference_is_reduced_even_when_a_tenth_of_the_events_is_missing(plain, case):
    for _ in range(_TRIES):
        figures = run_json(plain / "cases" / f"case_{case}", "--seconds", "0.4", "--drop", "10")
        there = figures["t_i_ms"] > 1.5 * figures["t_o_ms"]  # there is something to reduce
        if there and figures["reduction"] > _CLEARLY:
            return
    raise AssertionError(figures)
