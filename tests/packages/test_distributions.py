"""Wheels and sdists of every distribution: built, installed where nothing else is, and run.

A wheel is built from its sdist, as uv does it, so that what lacks in the one lacks in the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.distributions import FOLDERS, ROOT, link, needs, ours, python3

UV = Path(sys.executable).with_name("uv")

RUNS = {
    "dial-lb": ["dial --help", "dial --version"],
    "dial-lb-haproxy": ["dial check {cfg} --toml"],
    "dial-lb-envoy": ["dial check {yaml} --toml"],
    "dial-lb-pinot": ["python -c 'from dial.adapter import load_adapter as l; l(\"pinot\")'"],
    "dial-pbox": ["python -c 'import dial_pbox'"],
    "dial-lab": ["dial-lab list"],
    "dial-training": ["dial train --help"],
}
"""What a distribution is to do once it is installed; exit codes 0 and 1 say that it ran."""

HAPROXY_CFG = """\
frontend web
    bind :80
    default_backend app
backend app
    server s1 10.0.0.11:80
    server s2 10.0.0.12:80
"""
ENVOY_YAML = """\
static_resources:
  clusters:
  - name: app
    type: STATIC
    load_assignment:
      cluster_name: app
      endpoints:
      - lb_endpoints:
        - {endpoint: {address: {socket_address: {address: 10.0.0.11, port_value: 80}}}}
        - {endpoint: {address: {socket_address: {address: 10.0.0.12, port_value: 80}}}}
"""


def run(*words: str | Path, **environment: str) -> str:
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel of each."""
    directory = tmp_path_factory.mktemp("dist")
    run(
        *(UV, "build", "--quiet", "--all-packages", "--no-build-isolation", "--offline"),
        *("--python", sys.executable, "--out-dir", directory),
    )
    return directory


@pytest.fixture
def install(tmp_path: Path, built: Path) -> Callable[[str], Callable[[str], tuple[int, str]]]:
    """Make an environment of a distribution and what it needs; returns what runs lines in it."""

    def make(name: str) -> Callable[[str], tuple[int, str]]:
        there = ours(name)
        environment = tmp_path / "environment"
        program = python3(tmp_path / "python") / "python3"
        run(program, "-m", "venv", "--without-pip", environment)
        wheels = [next(built.glob(f"{each.replace('-', '_')}-*.whl")) for each in there]
        run(
            *(UV, "pip", "install", "--quiet", "--offline", "--no-deps"),
            *("--python", environment / "bin" / "python", *wheels),
        )
        needed = link(needs(there), tmp_path / "needs")
        path = f"{environment / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
        outside = {"PATH": path, "PYTHONPATH": str(needed), "COLUMNS": "120", "HOME": str(tmp_path)}

        def execute(line: str) -> tuple[int, str]:
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=tmp_path,
                env=outside,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=120,
            )
            return done.returncode, done.stdout

        return execute

    return make


def test_each_has_a_wheel_and_an_sdist_with_what_is_needed_to_read_it(built: Path) -> None:
    for name in FOLDERS:
        stem = name.replace("-", "_")
        (wheel,) = built.glob(f"{stem}-*.whl")
        (sdist,) = built.glob(f"{stem}-*.tar.gz")
        with tarfile.open(sdist) as archive:
            files = {Path(member).name for member in archive.getnames()}
        assert {"README.md", "pyproject.toml", "PKG-INFO"} <= files
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        assert not [n for n in names if "/tests/" in n or n.startswith("tests/")]
        assert any(n.endswith("METADATA") for n in names)


@pytest.mark.parametrize("name", FOLDERS)
def test_it_runs_in_an_environment_of_its_own(
    name: str, install: Callable[[str], Callable[[str], tuple[int, str]]], tmp_path: Path
) -> None:
    (tmp_path / "haproxy.cfg").write_text(HAPROXY_CFG)
    (tmp_path / "envoy.yaml").write_text(ENVOY_YAML)
    execute = install(name)
    code, out = execute("python -c 'import sys; print(sys.path)'")
    assert code == 0, out
    assert str(ROOT) not in out
    for line in RUNS[name]:
        code, out = execute(line.format(cfg="haproxy.cfg", yaml="envoy.yaml"))
        assert code in (0, 1), f"{line}: {out}"
        assert "Traceback" not in out, out
        if line.endswith("--toml"):
            assert 'service = "app"' in out, out


def test_a_model_is_shipped_and_an_adapter_that_is_missing_is_named(
    install: Callable[[str], Callable[[str], tuple[int, str]]], tmp_path: Path
) -> None:
    execute = install("dial-lb")
    code, out = execute(
        "python -c 'from dial.model import *; load_model(LAB); load_model(STARTER)'"
    )
    assert code == 0, out
    (tmp_path / "dial.toml").write_text('service = "app"\n[adapter]\nname = "haproxy"\n')
    code, out = execute("dial check dial.toml")
    assert code == 2
    assert "no such adapter; installed: none is installed" in out
    assert "pip install dial-lb-haproxy" in out


def test_a_command_whose_extra_is_not_installed_says_which(
    install: Callable[[str], Callable[[str], tuple[int, str]]],
) -> None:
    code, out = install("dial-pbox")("pbox-find --help")
    assert (code, out) == (
        2,
        "pbox-find: libclang is not installed: pip install 'dial-pbox[find]'\n",
    )
