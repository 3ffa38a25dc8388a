"""What the benchmark of pBoxes refuses to report, and the page of its figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks import pbox
from benchmarks.support.pbox import clean_environment
from benchmarks.support.pbox_page import with_figures
from benchmarks.support.pbox_server import Median, Server

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "pbox.md"

LIBC, SHIM = "/lib/libc.so.6", "/out/libpbox_shim.so"


def case(**figures: object) -> dict[str, object]:
    """Of a case that was measured well."""
    return {"case": "c5", "noisy_requests": [5, 4], "level": 9.0, "penalties": 3} | figures


def test_the_figures_of_the_page_are_those_of_the_json_beside_it() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    result = json.loads(_PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    assert with_figures(text, result) == text


def test_a_page_without_one_of_its_blocks_is_not_written() -> None:
    with pytest.raises(ValueError, match="blocks of the page"):
        with_figures("<!-- figures: machine -->\n<!-- end -->\n", {})


def test_a_case_is_reported_beside_the_papers_figures_for_it() -> None:
    assert pbox.checked(case())["paper"] == {"level": 15.35, "t_s_ms": 3.29}


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ({"noisy_requests": [5, 0]}, "did nothing"),
        ({"level": 0.1}, "none to reduce"),
        ({"level": float("nan")}, "none to reduce"),
        ({"penalties": 0}, "nobody was penalised"),
    ],
)
def test_a_case_without_what_it_is_of_is_refused(figures: dict, told: str) -> None:
    with pytest.raises(SystemExit, match=told):
        pbox.checked(case(**figures))


@pytest.mark.parametrize(
    ("plain", "shimmed"),
    [(LIBC, LIBC), (SHIM, SHIM), (SHIM, LIBC)],
    ids=["the loader passed over it", "it was there before", "the wrong way round"],
)
def test_a_shim_that_is_not_where_it_should_be_alone_has_no_overhead(
    monkeypatch: pytest.MonkeyPatch, plain: str, shimmed: str
) -> None:
    def run(_program: Path, environment: dict | None = None) -> dict:
        where = plain if environment is None else shimmed
        return {"calls_lead_to": where, "mutex_ns": 20.0, "rwlock_ns": 30.0}

    monkeypatch.setattr(pbox, "run_json", run)
    with pytest.raises(SystemExit, match="did not take effect"):
        pbox.lock_overhead(Path("/out"))
    plain, shimmed = LIBC, SHIM
    assert pbox.lock_overhead(Path("/out")) == {"mutex_ns": 0.0, "rwlock_ns": 0.0}


class Running:
    """A process of ours: this one."""

    pid = os.getpid()
    returncode = 0

    def poll(self) -> None:
        """It runs."""


def test_a_server_that_the_shim_is_not_before_is_not_taken_for_one_with_it() -> None:
    assert Server(Running(), 1, None).traced() == 0
    with pytest.raises(SystemExit, match="not before memcached"):
        Server(Running(), 1, Path("/dev/shm/none.page")).traced()


def test_what_would_change_a_program_with_pboxes_is_not_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LD_PRELOAD", "PBOX_MODE", "PBOX_PAGE"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LANG", "C")
    kept = clean_environment()
    assert kept["LANG"] == "C"
    assert not {"LD_PRELOAD", "PBOX_MODE", "PBOX_PAGE"} & kept.keys()


def test_the_interval_of_a_median_is_by_ranks() -> None:
    # 25 values: ranks 12 -+ round(0.98 * 5), which is 5.
    assert Median.of([i / 100 for i in reversed(range(25))]) == (0.12, 0.07, 0.17)
