"""Rounds that are done are kept, whole, and with others of the same run alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dial.errors import LabError
from dial_lab.calibration import Calibration
from dial_lab.learning import as_tuned
from dial_lab.loadgen import Results
from dial_lab.one_cache import Apart
from dial_lab.policies import policy
from dial_lab.reaction import Phases, Reaction
from dial_lab.report import BlockResult, ratios
from dial_lab.request import Request
from dial_lab.rounds import Kept, Round, by_policy, plan_of, program
from dial_lab.scenarios import scenario

REQUEST = Request(
    scenario=scenario("llc"),
    policies=(policy("leastconn"), policy("dial")),
    load=0.5,
    rate_per_s=None,
    severity=0.5,
    contended_s=15.0,
    rounds=8,
    percentile=90.0,
    seed=7,
)
PLAN = plan_of(REQUEST)
MOVED = ((0.0, {"s1": 128, "s2": 128}), (2.5, {"s1": 60, "s2": 128}))
REACTION = Reaction(2.5, None, 0, 1, {"llc": 9}, 0.48, MOVED, True)


def block(name: str, seed: int) -> BlockResult:
    random = np.random.default_rng(seed)
    count = 600
    status = np.full(count, 200, dtype=np.int16)
    status[3] = -1
    late_ms = random.random(count)
    late_ms[3] = np.nan
    results = Results(
        np.sort(random.random(count)) * 15.0,
        late_ms,
        random.exponential(10.0, count),
        status,
        random.integers(2, size=count).astype(np.int16),
        ("s1", "s2"),
    )
    reaction = REACTION if name == "dial" else None
    return BlockResult(name, Phases(0.0, 15.0, 0.0), results, reaction, Apart(0.01, 0.0), 7.25)


def round_(seed: int) -> Round:
    served = (Calibration(140.0, 61.5), Calibration(139.0, 139.0))
    blocks = {name: block(name, 10 * seed + i) for i, name in enumerate(("leastconn", "dial"))}
    return Round(served, 170.5 + seed, {"ice": "0.3"}, blocks, 150.0)


def test_what_is_read_back_is_what_was_done(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "cell", PLAN)
    assert kept.rounds == []
    done = [round_(seed) for seed in (1, 2, 3)]
    for each in done:
        kept.add(each)
    back = Kept(tmp_path / "cell", PLAN).rounds
    for was, now in zip(done, back, strict=True):
        assert replace(now, blocks={}) == replace(was, blocks={})
        for name, one in was.blocks.items():
            other = now.blocks[name]
            assert replace(other, results=one.results) == one
            assert other.results.names == one.results.names
            for column in ("intended_s", "late_ms", "latency_ms", "status", "backend"):
                np.testing.assert_array_equal(
                    getattr(other.results, column), getattr(one.results, column)
                )
    assert ratios(by_policy(back), 90.0, 7) == ratios(by_policy(done), 90.0, 7)


def test_a_round_that_was_broken_off_is_not_there(tmp_path: Path) -> None:
    where = tmp_path / "cell"
    kept = Kept(where, PLAN)
    kept.add(round_(1))
    (where / "partial").mkdir()
    (where / "partial" / "dial.npz").write_bytes(b"half")
    again = Kept(where, PLAN)
    assert [each.rate_per_s for each in again.rounds] == [171.5]
    again.add(round_(2))
    assert [each.rate_per_s for each in Kept(where, PLAN).rounds] == [171.5, 172.5]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"rounds": 5}, "rounds: 8, now 5"),
        ({"seed": 8}, "seed: 7, now 8"),
        ({"load": 0.25}, "load: 0.5, now 0.25"),
        ({"learn_once": True}, "learn_once: False, now True"),
        ({"scenario": scenario("mix"), "guest": "uml"}, "scenario: llc, now mix"),
        ({"policies": (policy("leastconn"),)}, r"policies: \['leastconn', 'dial'\], now \['least"),
    ],
)
def test_rounds_of_another_run_are_not_gone_on_with(
    tmp_path: Path, other: dict[str, object], said: str
) -> None:
    where = tmp_path / "cell"
    Kept(where, PLAN).add(round_(1))
    with pytest.raises(LabError, match=f"cell: the rounds there are of another run .{said}"):
        Kept(where, plan_of(replace(REQUEST, **other)))
    assert len(Kept(where, PLAN).rounds) == 1


def test_nor_are_those_of_another_program(tmp_path: Path) -> None:
    where = tmp_path / "cell"
    Kept(where, {**PLAN, "program": "0" * 64}).add(round_(1))
    with pytest.raises(LabError, match=f"program: {'0' * 64}, now {program()}"):
        Kept(where, PLAN)


def test_a_program_is_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "shipped").symlink_to(tmp_path / "models")
    monkeypatch.setattr("dial_lab.rounds.files", lambda _: tmp_path / "package")
    seen = [program()]
    for path, text in [
        ("package/a.py", "x = 1"),
        ("package/a.py", "x = 2"),
        ("models/tree.json", "{}"),
    ]:
        (tmp_path / path).write_text(text)
        seen.append(program())
    assert len(set(seen)) == len(seen)
    (tmp_path / "package" / "README.md").write_text("no part of it")
    assert program() == seen[-1]


@pytest.mark.parametrize("text", ["?", "[]", "{}"])
@pytest.mark.parametrize("broken", ["1/round.json", "1/dial.npz", "plan.json"])
def test_what_cannot_be_read_is_said(tmp_path: Path, broken: str, text: str) -> None:
    where = tmp_path / "cell"
    Kept(where, PLAN).add(round_(1))
    (where / broken).write_text(text)
    with pytest.raises(LabError, match="cell: kept rounds cannot be read: "):
        Kept(where, PLAN)


def test_requests_that_are_half_on_disk_cannot_be_read(tmp_path: Path) -> None:
    Kept(tmp_path / "cell", PLAN).add(round_(1))
    requests = tmp_path / "cell" / "1" / "dial.npz"
    whole = requests.read_bytes()
    requests.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LabError, match="cell: kept rounds cannot be read: "):
        Kept(tmp_path / "cell", PLAN)


def test_rounds_are_kept_without_code(tmp_path: Path) -> None:
    Kept(tmp_path / "cell", PLAN).add(round_(1))
    assert json.loads((tmp_path / "cell" / "plan.json").read_text())["rounds"] == 8
    for path in (tmp_path / "cell" / "1").glob("*.npz"):
        with np.load(path, allow_pickle=False) as file:
            assert set(file.files) >= {"intended_s", "latency_ms", "status"}


def test_a_setting_that_was_found_is_not_looked_for_again() -> None:
    ice, dial = policy("ice"), policy("dial")
    assert ice.candidates
    assert as_tuned((ice, dial), {"ice": "0.3"}) == (
        replace(ice, setting="0.3", candidates=()),
        dial,
    )
