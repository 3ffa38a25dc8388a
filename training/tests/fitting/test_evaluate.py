"""From a data set on disk to a model and its accuracy, on simulated data throughout."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dial.classifier import Branch
from dial.errors import ModelError
from dial.model import STARTER, load_model, save_model
from dial.types import Cause
from dial_training.card import alpha_of
from dial_training.cli import app
from dial_training.dataset import Dataset, sha256
from dial_training.errors import DatasetError, TrainingError
from dial_training.evaluate import load
from dial_training.figures import draw_all
from dial_training.fit import fit
from dial_training.measure import evaluate
from dial_training.report import show
from dial_training.train import train_to

KEYS = {
    "cv_error",
    "unseen_accuracy",
    "unseen_n",
    "per_class",
    "false_positive_rate",
    "false_positive_runs",
    "model_error",
    "rho_bg_mae",
    "tiers",
}
"""That people and checks rely on."""


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """A data set and the model made from it."""
    directory = tmp_path_factory.mktemp("trained")
    data.write(directory / "data.parquet")
    train_to(directory / "data.parquet", directory / "model.json")
    return directory / "data.parquet", directory / "model.json"


@pytest.fixture(scope="module")
def evaluation(files):
    return evaluate(*load(*files))


def test_eq_1_of_simulated_machines_is_m_m_1s(fitted):
    """T90 = 2.303 / (150 (1 - rho)) s: u times that of the idle machine, here from rho 0.3 on."""
    shape = fitted.shapes[Cause.CPU]
    for rho in (0.5, 0.7):
        assert shape.t_x_ms(rho) / shape.t_x_ms(0.3) == pytest.approx(0.7 / (1.0 - rho), rel=0.1)


def test_the_same_data_give_the_same_model(studied, fitted):
    again = fit(studied)
    assert again.tree == fitted.tree
    assert again.shapes == fitted.shapes


def test_only_the_training_set_is_learnt_from(studied, fitted):
    of_training = fit([s for s in studied if s.session.set == "train"])
    assert of_training.tree == fitted.tree
    assert of_training.shapes == fitted.shapes


def test_without_a_training_set_there_is_nothing_to_fit(studied):
    with pytest.raises(DatasetError, match="no session of the set 'train'"):
        fit([s for s in studied if s.session.set != "train"])


def test_one_session_of_each_resource_is_enough_for_a_first_model(data, tmp_path):
    """The quick mode: nothing to measure on, and the card says so."""
    few = tuple(s for s in data.sessions if s.session.startswith("train-") and s.session[-1] == "0")
    replace(data, sessions=few).write(tmp_path / "quick.parquet")
    model = train_to(tmp_path / "quick.parquet", tmp_path / "quick.json")
    assert {cause.value for cause in model.tail_shapes} == {"cpu", "net", "disk"}
    assert {"cpu", "net", "disk", "llc", "self-limited"} <= causes_of(model.decision_tree)
    assert "unseen programs unknown of 0 cases" in model.card["accuracy_probe"]
    assert "splits no stage" in model.card["tree"]


def causes_of(tree):
    if isinstance(tree, Branch):
        return causes_of(tree.below) | causes_of(tree.above)
    return {tree.cause.value}


def test_simulated_neighbours_are_told_apart(evaluation):
    assert evaluation.accuracy["unseen_accuracy"] > 0.9
    assert evaluation.accuracy["cv_error"] < 0.1
    assert evaluation.accuracy["model_error"] < 0.08
    assert evaluation.accuracy["rho_bg_mae"] < 0.08


def test_without_the_probe_a_cache_neighbour_is_told_by_the_cpu_time_or_not_at_all(evaluation):
    """The tiers are measured apart: the lower one never has what it hides."""
    tiers = evaluation.accuracy["tiers"]
    assert set(tiers) == {"proc", "psi", "probe"}
    assert tiers["probe"]["cv_rows"] == tiers["proc"]["cv_rows"] > 0
    apart = ("tiers", "without_load_test")
    assert {k: v for k, v in evaluation.accuracy.items() if k not in apart} == tiers["probe"]


def test_what_is_without_a_load_test_is_measured_on_the_same_cases(evaluation):
    untested = evaluation.accuracy["without_load_test"]
    assert untested["unseen_n"] == evaluation.accuracy["unseen_n"]
    assert untested["model_error"] != evaluation.accuracy["model_error"]


def test_the_model_on_disk_is_the_one_that_was_fitted(files, fitted):
    model = load_model(files[1])
    assert model.decision_tree == fitted.tree
    assert isinstance(model.decision_tree, Branch)
    assert model.tail_shapes == fitted.shapes
    assert alpha_of(model.card) == fitted.cross_validation.alpha
    assert model.card["data_sha256"] == sha256(files[0])
    assert "shared one kernel" in model.card["limits"]


def test_the_last_line_of_the_report_is_one_object_with_the_stable_keys(files, evaluation):
    arguments = ["evaluate", "--data", str(files[0]), "--model", str(files[1]), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report.keys() >= KEYS
    assert report["tiers"]["proc"].keys() >= KEYS - {"tiers"}
    assert report["cv_error"] == evaluation.accuracy["cv_error"]
    assert report["ablation"].keys() >= {"nothing", "t_c_ratio"}
    assert report["forms"].keys() == {"absolute", "shape", "mm1"}


def test_tables_name_every_class_and_tier(files, evaluation):
    console = Console(width=120, file=StringIO())
    show(console, evaluation, load_model(files[1]))
    for word in ("cpu", "llc", "self-limited", "/proc alone", "+ memory probe", "(nothing)"):
        assert word in console.file.getvalue()


def test_pictures_are_drawn(evaluation, files, tmp_path):
    drawn = draw_all(evaluation, load_model(files[1]), tmp_path)
    assert [path.name for path in drawn] == ["tree.png", "confusion.png", "eq1.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_a_signal_that_alone_tells_a_class_is_missed(evaluation):
    """Only the VM's own throttling counter tells self-limited from a neighbour on the CPU."""
    whole, without = (
        next(each for each in evaluation.ablation if each.without == name)
        for name in (None, "throttled_excess")
    )
    assert without.cv_error > whole.cv_error + 0.02


def test_other_data_than_the_model_was_made_from_is_refused(files, tmp_path):
    data = Dataset.load(files[0])
    fewer = tmp_path / "fewer.parquet"
    replace(data, sessions=data.sessions[:-1]).write(fewer)
    with pytest.raises(TrainingError, match=r"fewer\.parquet: sha256 .* was made from"):
        load(fewer, files[1])


def test_a_model_that_was_not_trained_is_refused(files):
    with pytest.raises(TrainingError, match="it was not trained by dial train"):
        load(files[0], STARTER)


def test_a_model_changed_after_it_was_made_is_refused(files, tmp_path):
    changed = json.loads(files[1].read_text())
    changed["tree"]["threshold"] += 0.1
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    with pytest.raises(ModelError, match="it was changed or cut short"):
        load(files[0], tmp_path / "changed.json")


def test_features_in_another_order_are_refused(files, tmp_path):
    model = load_model(files[1])
    save_model(model.model_copy(update={"features": model.features[::-1]}), tmp_path / "m.json")
    with pytest.raises(ModelError, match="in that order"):
        load(files[0], tmp_path / "m.json")
