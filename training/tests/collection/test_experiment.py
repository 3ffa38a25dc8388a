"""Experiments: checked when read, and always the same sessions."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest

import dial_training.expand
from dial_lab.request import MACHINES
from dial_lab.resources import RESOURCES, programs_for
from dial_lab.session import REVISION, Stage
from dial_training import experiment
from dial_training.errors import ExperimentError
from dial_training.expand import SessionSpec, expand
from dial_training.experiment import Experiment
from dial_training.label import cause

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SHIPPED = sorted(set(EXPERIMENTS.glob("*.toml")) - {EXPERIMENTS / "quick.toml"})

GROUP = {"count": 6, "seconds": 10.0, "victims": 2, "rho_bg": [0.3, 0.5, 0.7]}


def made(**changes: object) -> Experiment:
    document = {
        "set": "train",
        "seed": 5,
        "resources": ["cpu", "net"],
        "loads": [0.2, 0.5],
        "stages": [GROUP],
    }
    return Experiment.model_validate(document | changes)


def stages(specs: list[SessionSpec]) -> list[Stage]:
    return [stage for spec in specs for stage in spec.plan.stages]


def test_the_same_experiment_gives_the_same_sessions() -> None:
    assert expand(made(repeats=2)) == expand(made(repeats=2))


def test_there_is_a_session_for_each_repeat_load_and_resource() -> None:
    specs = expand(made(repeats=2))
    assert [(s.plan.resource, s.plan.load) for s in specs] == 2 * [
        (resource, rho_fg) for rho_fg, resource in product((0.2, 0.5), ("cpu", "net"))
    ]
    assert len({s.id for s in specs}) == len({s.plan.seed for s in specs}) == 8


def test_a_session_that_changes_gets_another_id_and_the_others_keep_theirs() -> None:
    before = [s.id for s in expand(made())]
    assert before[0].startswith("train-cpu-20-1-")
    after = [s.id for s in expand(made(loads=[0.2, 0.4]))]
    assert after[:2] == before[:2]
    assert not set(after[2:]) & set(before)
    assert not {s.id for s in expand(made(seed=6))} & set(before)


def test_a_session_is_another_one_in_a_lab_that_records_something_else(monkeypatch):
    before = {s.id for s in expand(made())}
    monkeypatch.setattr(dial_training.expand, "REVISION", REVISION + 1)
    assert not {s.id for s in expand(made())} & before


def test_a_tenant_with_a_kernel_of_its_own_has_sessions_of_its_own_name():
    (spec, *_) = expand(made(resources=["cpu"], guest="uml"))
    assert (spec.plan.guest, spec.id.split("-")[1]) == ("uml", "uml")


def test_machines_intensities_and_programs_come_equally_often() -> None:
    group = GROUP | {"purpose": "unseen", "neighbours": ["cpu", "self-limited"]}
    (spec,) = expand(made(resources=["cpu"], loads=[0.2], stages=[group]))
    visits = [(m, n) for stage in spec.plan.stages for m, n in stage.neighbours.items()]
    # 6 stages of 2 victims: 12 visits over 3 machines and 2 kinds; 6 of a kind over 3 intensities.
    assert Counter(machine for machine, _ in visits) == dict.fromkeys(MACHINES, 4)
    assert Counter((n.resource, n.rho_bg) for _, n in visits) == dict.fromkeys(
        product(("cpu", "self-limited"), (0.3, 0.5, 0.7)), 2
    )
    assert Counter(n.program for _, n in visits if n.resource == "cpu") == dict.fromkeys(
        programs_for(RESOURCES["cpu"], "unseen"), 3
    )


def test_a_machine_is_never_asked_for_more_than_it_can_nearly_do() -> None:
    group = GROUP | {"own_load": [{"rate_factor": 1.5}, {"cost_factor": 1.2}]}
    specs = expand(made(loads=[0.2, 0.4], stages=[group]))
    used = [
        spec.plan.load * stage.rate_factor * stage.cost_factor + neighbour.rho_bg
        for spec in specs
        for stage in spec.plan.stages
        for neighbour in stage.neighbours.values()
    ]
    assert len(used) == 4 * 6 * 2
    # 0.2 * 1.5 + 0.7 would be 1.0.
    assert max(used) <= 0.95 + 1e-9


def test_groups_are_mixed_within_a_session() -> None:
    quiet = {"count": 6, "seconds": 10.0}
    (spec,) = expand(made(resources=["cpu"], loads=[0.2], stages=[GROUP, quiet]))
    visited = [bool(stage.neighbours) for stage in spec.plan.stages]
    assert sum(visited) == 6
    assert visited not in ([True] * 6 + [False] * 6, [False] * 6 + [True] * 6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"loads": [0.7]},
            r"train-cpu-70-1: rho_bg \[0.3, 0.5, 0.7\]: none fits to a rho_fg of 0.7",
        ),
        ({"resources": ["gpu"]}, r"train-gpu-20-1: .*gpu: there is none of that name; allowed: c"),
        ({"stages": [GROUP | {"neighbours": ["gpu"]}]}, r"neighbours gpu: .* allowed: cpu, net"),
        ({"stages": [GROUP | {"machines": ["s1"]}]}, r"2 victims of 1 machines"),
        ({"stages": [GROUP | {"machines": ["s1", "s9"]}]}, r"machine s9: .* allowed: s1, s2, s3"),
    ],
)
def test_what_the_lab_cannot_do_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        expand(made(**changes))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("set = ", r"bad.toml: not TOML: "),
        ('set = "test"', r"bad.toml: set"),
        ('set = "train"\nseed = 1\nresources = ["cpu"]\nloads = [1.5]', r"bad.toml: .*loads"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ExperimentError, match=said):
        experiment.load(path)
    with pytest.raises(ExperimentError, match=r"none.toml: No such file"):
        experiment.load(tmp_path / "none.toml")


def shipped(*sets: str) -> list[SessionSpec]:
    found = [experiment.load(path) for path in SHIPPED]
    return [spec for one in found if one.set in sets for spec in expand(one)]


def test_shipped_experiments_keep_training_and_unseen_programs_apart() -> None:
    def programs(*sets: str) -> set[str]:
        return {n.program for stage in stages(shipped(*sets)) for n in stage.neighbours.values()}

    assert programs("train", "heldout")
    assert programs("unseen")
    assert not programs("train", "heldout") & programs("unseen")
    assert not programs("quiet")


def test_shipped_heldout_intensities_and_loads_are_not_those_of_training() -> None:
    def drawn(name: str) -> tuple[set[float], set[float]]:
        specs = shipped(name)
        rho_bg = {n.rho_bg for stage in stages(specs) for n in stage.neighbours.values()}
        return rho_bg, {spec.plan.load for spec in specs}

    for heldout, train in zip(drawn("heldout"), drawn("train"), strict=True):
        assert heldout
        assert not heldout & train
    # Estimates of rho_bg count from a rho_fg of 0.3 on.
    assert len({spec.plan.load for spec in shipped("heldout") if spec.plan.load >= 0.3}) >= 2


def test_shipped_experiments_have_the_cases_that_the_figures_rest_on() -> None:
    def cases(*sets: str) -> Counter[str]:
        return Counter(
            cause(stage, machine).value for stage in stages(shipped(*sets)) for machine in MACHINES
        )

    unseen = cases("unseen")
    del unseen["none"]
    assert unseen.total() >= 100
    assert min(unseen[c] for c in ("cpu", "net", "disk", "llc", "self-limited", "load")) >= 16
    everywhere = cases("train", "heldout", "unseen", "quiet")
    assert everywhere["none"] + everywhere["load"] >= 300


def test_the_quick_experiment_takes_ten_minutes_at_most() -> None:
    specs = expand(experiment.load(EXPERIMENTS / "quick.toml"))
    assert sum(spec.plan.expected_s for spec in specs) <= 600.0
    assert {n.resource for stage in stages(specs) for n in stage.neighbours.values()} == {
        "cpu",
        "net",
        "disk",
        "llc",
    }
