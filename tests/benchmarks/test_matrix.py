"""The matrix of policies: its cells, what is asked of them, and how results are kept and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.matrix import RESULTS, load, main, save
from benchmarks.support.matrix_cells import CALM, LOADS, RESOURCES, STRONG, Cell, cells
from benchmarks.support.matrix_criteria import best, of_all, of_cell, unsteady
from benchmarks.support.matrix_page import with_figures
from benchmarks.support.matrix_picture import draw
from dial.errors import LabError
from dial_lab.policies import anywhere

PAGE = Path(__file__).resolve().parents[2] / "docs" / "matrix.md"


def measured(cell: Cell, p90_ms: dict[str, float], spread: float = 0.01) -> dict[str, Any]:
    """A cell as it is kept; intervals reach ``spread`` of the ratio to either side."""
    figures = {"p50_ms": 1.0, "p95_ms": 9.0, "p99_ms": 9.0, "mean_ms": 2.0}
    ratios = {
        f"dial/{name}": {
            "p90": p90_ms["dial"] / other,
            "ci95": [(1 + sign * spread) * p90_ms["dial"] / other for sign in (-1, 1)],
        }
        for name, other in p90_ms.items()
        if name != "dial"
    }
    return {
        "resource": cell.resource,
        "load": cell.load,
        "severity": cell.severity,
        "app": cell.app,
        "repeats": 5,
        "took_s": 600,
        "calibration": {"peak_rps": 143.0, "contended_rps": 75.0},
        "policies": {
            name: figures | {"p90_ms": value, "requests": 1000, "errors": 0}
            for name, value in p90_ms.items()
        },
        "ratios": ratios,
        "generator_kept_up": True,
        "machine": {"cores": 2, "kernel": "6.1", "cpu": "some"},
        "commit": "0123456789ab",
        "at": "2026-11-22T10:00:00Z",
    }


def verdicts(cell: dict[str, Any]) -> dict[str, bool]:
    return {found.what: found.holds for found in of_cell(cell)}


def test_every_resource_is_there_at_every_load_and_strong_neighbours_at_the_middle_one() -> None:
    there = list(cells())
    assert len(set(map(str, there))) == len(there) == 3 * 8 + 5 + 1
    assert {(c.resource, c.load) for c in there} == {
        (r, x) for r in RESOURCES + CALM for x in LOADS
    }
    assert {c.resource for c in there if c.severity == STRONG} == set(RESOURCES)
    assert [str(c) for c in there if c.app != "lab"] == ["cpu/0.5/0.5/apache"]


def test_every_policy_of_every_cell_can_be_run() -> None:
    for cell in cells():
        assert len({anywhere(name).name for name in cell.policies}) == len(cell.policies)


def test_a_cell_is_named_as_it_is_asked_for() -> None:
    assert Cell.parse("cpu/0.5/0.2") == Cell("cpu", 0.5, 0.2)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("gpu/0.5/0.5", ["cpu/0.5/0.5"]),
        ("CPU/0.5/0.4", ["cpu/0.5/0.5", "cpu/0.5/0.2"]),
        ("two-victim/0.75/0.5", ["two-victims/0.75/0.5"]),
        ("", []),
    ],
)
def test_a_cell_that_is_none_is_one_line_that_names_the_nearest_first(
    wrong: str, nearest: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--cell", wrong])
    said = capsys.readouterr().err
    begin, _, allowed = said.partition("allowed: ")
    assert (ended.value.code, begin) == (2, f"matrix: --cell {wrong}: no such cell; ")
    assert said.count("\n") == 1
    names = allowed.strip().split(", ")
    assert names[: len(nearest)] == nearest
    assert sorted(names) == sorted(map(str, cells()))


@pytest.mark.parametrize(("asked", "code"), [(["--cell", "llc/0.5/0.5"], 1), ([], 0)])
def test_only_a_cell_asked_for_by_name_is_a_failure_when_it_cannot_be_measured(
    asked: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LabError("the cache is not quiet")

    monkeypatch.setattr("benchmarks.matrix.measure", refuse)
    path = tmp_path / "matrix.json"
    assert main([*asked, "--results", str(path)]) == code
    assert not path.exists()


def test_results_are_kept_by_cell_in_the_matrix_order(tmp_path: Path) -> None:
    path = tmp_path / "results" / "matrix.json"
    assert load(path) == {}
    kept = {
        str(cell): measured(cell, {"leastconn": 30.0, "dial": 20.0})
        for cell in reversed(list(cells()))
    }
    save(path, kept)
    assert load(path) == kept
    assert [c["resource"] for c in json.loads(path.read_text())["cells"]][:2] == ["cpu", "net"]


def test_ours_is_held_against_the_best_that_balancers_ship() -> None:
    p90_ms = {"roundrobin": 90.0, "leastconn": 20.0, "random2": 25.0, "dial": 20.0}
    cell = measured(Cell("cpu", 0.5, 0.5), p90_ms, spread=0.01)
    assert best(cell, ("roundrobin", "leastconn", "random2")) == "leastconn"
    # A ratio of 1 whose interval ends at 1.01, and then at 1.03; 1.02 is what is asked.
    assert verdicts(cell) == {"shipped": True}
    assert verdicts(measured(Cell("cpu", 0.5, 0.5), p90_ms, spread=0.03)) == {"shipped": False}


def test_the_paper_is_to_be_beaten_and_the_oracle_to_be_neared() -> None:
    near = {"leastconn": 50.0, "dial-paper": 20.1, "oracle": 18.6, "dial": 20.0}
    assert verdicts(measured(Cell("net", 0.25, 0.5), near)) == {
        "shipped": True,
        "paper": True,
        "oracle": True,  # 20/18.6 = 1.075
    }
    far = near | {"dial-paper": 20.0, "oracle": 18.5}  # 1.0 and 1.081
    found = verdicts(measured(Cell("net", 0.25, 0.5), far))
    assert (found["paper"], found["oracle"]) == (False, False)


def test_a_machine_that_serves_less_in_one_round_than_in_another_is_said() -> None:
    cell = measured(Cell("llc", 0.5, 0.5), {"leastconn": 20.0, "dial": 20.0})
    assert unsteady(cell) == ""
    rounds = [{"peak_rps": rps, "contended_rps": 75.0} for rps in (219.0, 210.0, 191.0)]
    cell["calibration"]["rounds"] = rounds[:1] * 3
    assert unsteady(cell) == ""
    cell["calibration"]["rounds"] = rounds[:2]  # 1.04 of the least; 1.15 is what is let pass
    assert unsteady(cell) == ""
    cell["calibration"]["rounds"] = [*rounds[:2], {"peak_rps": 189.0, "contended_rps": 75.0}]
    assert unsteady(cell) == "peak 219, 210, 189 req/s"
    cell["calibration"]["rounds"] = [rounds[0], rounds[0] | {"contended_rps": 40.0}]
    assert unsteady(cell) == "contended 75, 40 req/s"
    text = with_figures(PAGE.read_text(encoding="utf-8"), {"llc/0.5/0.5": cell})
    assert "was not the same in llc/0.5/0.5 (contended 75, 40 req/s)." in text


def test_where_nobody_contends_no_harm_is_all_that_is_asked() -> None:
    p90_ms = {"leastconn": 10.0, "oracle": 5.0, "dial": 10.4}
    # 1.04, and the interval begins at 1.03 or at 0.94.
    assert verdicts(measured(Cell("mix", 0.5, 0.5), p90_ms)) == {"no harm": False}
    assert verdicts(measured(Cell("mix", 0.5, 0.5), p90_ms, spread=0.1)) == {"no harm": True}


def test_four_repeats_are_too_few() -> None:
    cell = measured(Cell("none", 0.5, 0.5), {"leastconn": 10.0, "dial": 10.0}) | {"repeats": 4}
    assert verdicts(cell) == {"repeats": False, "no harm": True}


def test_means_over_all_are_geometric_and_of_the_contended_cells() -> None:
    cells_there = [
        measured(Cell("cpu", 0.5, 0.5), {"leastconn": 40.0, "peak-ewma": 20.0, "dial": 20.0}),
        measured(Cell("net", 0.5, 0.5), {"leastconn": 20.0, "peak-ewma": 10.0, "dial": 20.0}),
        measured(Cell("none", 0.5, 0.5), {"leastconn": 1.0, "dial": 20.0}),
    ]
    found = {one.what: one for one in of_all(cells_there, list(cells()))}
    # 0.5 and 1: 0.707; 1 and 2: 1.414.
    assert found["geometric mean, shipped"].figure.startswith("0.707 in 2 cells")
    assert found["geometric mean, shipped"].holds
    assert found["geometric mean, rivals"].figure.startswith("1.414 in 2 cells")
    assert not found["geometric mean, rivals"].holds
    assert not found["cells measured"].holds
    assert found["in each cell, shipped"].figure == "2 of 2 cells"


def test_the_page_says_what_is_not_measured() -> None:
    text = PAGE.read_text(encoding="utf-8")
    cell = Cell("cpu", 0.5, 0.5)
    shown = with_figures(text, {str(cell): measured(cell, {"leastconn": 30.0, "dial": 20.0})})
    assert "1 of 30 cells are measured." in shown
    assert "| cpu/0.5/0.5 | holds | 0.67 (0.66 to 0.67) to leastconn |" in shown
    assert shown.count("| not measured |") == 29


def test_the_page_says_of_each_cell_when_and_where_and_of_which_commit_it_was_measured() -> None:
    text = PAGE.read_text(encoding="utf-8")
    one, other = Cell("cpu", 0.5, 0.5), Cell("net", 0.5, 0.5)
    cells = {str(cell): measured(cell, {"leastconn": 30.0, "dial": 20.0}) for cell in (one, other)}
    cells[str(other)] |= {
        "machine": {"cores": 4, "kernel": "6.1", "cpu": "another"},
        "commit": "ba9876543210",
        "at": "2026-11-24T10:00:00Z",
        "repeats": 12,
    }
    shown = with_figures(text, cells)
    assert (
        "From 2026-11-22 to 2026-11-24, 20 minutes in all, on 2 cores of some and 4 cores of "
        "another (Linux 6.1)." in shown
    )
    assert " | 5 | 2026-11-22 | 0123456789ab | some |\n" in shown
    assert " | 12 | 2026-11-24 | ba9876543210 | another |\n" in shown


def test_the_page_says_where_lines_were_taken_and_no_cache_swept() -> None:
    text = PAGE.read_text(encoding="utf-8")
    one, other = Cell("llc", 0.25, 0.5), Cell("llc", 0.75, 0.5)
    cells = {str(cell): measured(cell, {"leastconn": 30.0, "dial": 20.0}) for cell in (one, other)}
    cells[str(one)]["neighbours"] = ["search"]
    said = "the neighbour takes the victim's cache lines"
    assert said not in with_figures(text, cells)
    cells[str(other)]["neighbours"] = ["taker"]
    assert f" In llc/0.75/0.5 {said}" in with_figures(text, cells)


def test_the_page_shows_the_results_that_are_kept() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_figures(text, load(RESULTS)) == text


def test_a_picture_is_drawn_of_any_part_of_the_matrix(tmp_path: Path) -> None:
    cell = Cell("cpu", 0.5, 0.5)
    for kept in ({}, {str(cell): measured(cell, {"leastconn": 30.0, "dial": 20.0})}):
        draw(kept, tmp_path / "matrix.png")
        assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")
