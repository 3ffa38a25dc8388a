"""The matrix of policies: which cells there are, and how results are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.matrix import CALM, LOADS, RESOURCES, STRONG, Cell, cells, load, save
from dial_lab.policies import policy


def test_every_resource_is_there_at_every_load_and_strong_neighbours_at_the_middle_one() -> None:
    there = list(cells())
    assert len(set(map(str, there))) == len(there) == 3 * 8 + 5
    assert {(c.resource, c.load) for c in there} == {
        (r, x) for r in RESOURCES + CALM for x in LOADS
    }
    assert {c.resource for c in there if c.severity == STRONG} == set(RESOURCES)


def test_every_policy_of_every_cell_can_be_run() -> None:
    for cell in cells():
        assert len({policy(name).name for name in cell.policies}) == len(cell.policies)


def test_a_cell_is_named_as_it_is_asked_for() -> None:
    assert Cell.parse("cpu/0.5/0.2") == Cell("cpu", 0.5, 0.2)
    with pytest.raises(ValueError, match=r"--cell gpu/1/1: no such cell; allowed: cpu/0\.5/0\.5"):
        Cell.parse("gpu/1/1")


def test_results_are_kept_by_cell_in_the_matrix_order(tmp_path: Path) -> None:
    path = tmp_path / "results" / "matrix.json"
    assert load(path) == {}
    kept = {
        str(cell): {"resource": cell.resource, "load": cell.load, "severity": cell.severity}
        for cell in reversed(list(cells()))
    }
    save(path, kept)
    assert load(path) == kept
    assert [c["resource"] for c in json.loads(path.read_text())["cells"]][:2] == ["cpu", "net"]
