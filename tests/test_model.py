"""Model files: read whole or refused whole, with the file and the cause named."""

import json
import pickle
from pathlib import Path

import pytest

from dial.classifier import FEATURES, Branch, Leaf
from dial.errors import ModelError
from dial.model import LAB, SHIPPED, STARTER, ModelDocument, load_model, model_path, save_model
from dial.queueing import TailCurve
from dial.types import Cause


def branch(**changed):
    whole = {
        "feature": "cpu_time_ratio",
        "threshold": 1.5,
        "below": {"cause": "none"},
        "above": {"cause": "cpu"},
        "missing": "below",
    }
    return whole | changed


@pytest.fixture
def document():
    """A small model as a JSON object, without its checksum."""
    return {
        "format": 1,
        "name": "small",
        "card": {"what": "for a test"},
        "features": list(FEATURES),
        "tree": branch(),
        "shapes": {"cpu": {"c0": 0.25, "c1": 0.5, "c2": 0.25}},
    }


@pytest.fixture
def written(tmp_path):
    """Writes bytes, text or an object to a file and gives its path."""

    def write(content):
        path = tmp_path / "model.json"
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def signed(document):
    return document | {"checksum": ModelDocument.model_validate(document).checksum()}


def deep(levels):
    node = {"cause": "none"}
    for _ in range(levels):
        node = branch(above=node)
    return node


def test_the_shipped_starter_model_loads_and_has_a_card():
    model = load_model(STARTER)
    assert model.name == "starter"
    assert {"what", "limits", "source"} <= set(model.card)
    assert isinstance(model.decision_tree, Branch)
    assert model.tail_shapes == {}


def test_what_was_saved_is_loaded_again(document, tmp_path):
    model = ModelDocument.model_validate(document)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded == model
    assert loaded.checksum() == model.checksum()
    assert loaded.decision_tree == Branch("cpu_time_ratio", 1.5, Leaf(Cause.NONE), Leaf(Cause.CPU))
    assert loaded.tail_shapes == {Cause.CPU: TailCurve(0.25, 0.5, 0.25)}


def test_the_order_of_keys_and_the_white_space_do_not_matter(document, written):
    turned = dict(reversed(signed(document).items()))
    assert load_model(written(json.dumps(turned, indent=7))).name == "small"


def test_twelve_comparisons_in_a_row_are_still_read(document, written):
    assert load_model(written(signed(document | {"tree": deep(12)}))).name == "small"


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"format": 2}, "format 2; this version reads 1"),
        ({"format": "1"}, "format '1'; this version reads 1"),
        ({"features": list(FEATURES)[:-1]}, "features are"),
        ({"features": [*FEATURES, "moon_phase"]}, "moon_phase"),
        ({"features": list(reversed(FEATURES))}, "in that order"),
        ({"tree": branch(feature="moon_phase")}, "the tree asks for 'moon_phase'"),
        ({"tree": branch(above=branch(feature="moon_phase"))}, "the tree asks for 'moon_phase'"),
        ({"tree": deep(13)}, "deeper than 12"),
        ({"tree": deep(200)}, "deeper than 12"),
        ({"tree": deep(300)}, "Recursion"),
        ({"tree": {"cause": "lunch"}}, "tree.leaf.cause = 'lunch'"),
        ({"tree": {}}, "tree.branch.feature: Field required"),
        ({"tree": "cpu"}, "tree"),
        ({"tree": branch(threshold=float("nan"))}, "tree.branch.threshold = nan"),
        ({"tree": branch(threshold=float("inf"))}, "tree.branch.threshold = inf"),
        ({"tree": branch(missing="left")}, "missing = 'left'"),
        ({"tree": branch(extra=1)}, "tree.branch.extra"),
        ({"shapes": {"cpu": {"c0": 1, "c1": 0, "c2": 0}}}, "at least one must be pos"),
        ({"shapes": {"cpu": {"c0": 1, "c1": 1, "c2": 0}}}, "c0 + c1 + c2 = 2.0; want 1"),
        ({"shapes": {"cpu": {"c0": -1, "c1": 2, "c2": 0}}}, "c0 = -1"),
        ({"shapes": {"gpu": {"c0": 0, "c1": 1, "c2": 0}}}, "gpu"),
        ({"name": ""}, "name = ''"),
        ({"card": None}, "card"),
        ({"pickle": "gASVAAAA"}, "pickle: Extra inputs are not permitted"),
    ],
)
def test_a_document_that_does_not_fit_is_refused(document, written, changed, cause):
    path = written(document | changed | {"checksum": "sha256:0"})
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert cause.lower() in str(caught.value).lower()
    assert len(str(caught.value)) < 10_000  # names the place, does not print the whole tree


@pytest.mark.parametrize("key", ["format", "name", "card", "features", "tree"])
def test_a_document_with_a_part_missing_is_refused(document, written, key):
    del document[key]
    with pytest.raises(ModelError, match=rf"model\.json: {key}"):
        load_model(written(document | {"checksum": "sha256:0"}))


@pytest.mark.parametrize("checksum", ["sha256:00", "", None, 7])
def test_a_wrong_checksum_is_refused(document, written, checksum):
    with pytest.raises(ModelError, match=r"model\.json: checksum .* but the content has 'sha256:"):
        load_model(written(document | {"checksum": checksum}))


def test_a_document_changed_after_it_was_signed_is_refused(document, written):
    changed = signed(document) | {"tree": branch(threshold=1.6)}
    with pytest.raises(ModelError, match="it was changed or cut short"):
        load_model(written(changed))


def test_the_checksum_covers_every_part(document):
    base = ModelDocument.model_validate(document).checksum()
    for changed in (
        {"name": "other"},
        {"card": {"what": "else"}},
        {"tree": branch(missing="above")},
        {"shapes": {}},
    ):
        assert ModelDocument.model_validate(document | changed).checksum() != base


def test_a_truncated_file_is_refused(document, written):
    text = json.dumps(signed(document))
    for length in (0, 1, len(text) // 2, len(text) - 1):
        with pytest.raises(ModelError, match=r"model\.json: not JSON"):
            load_model(written(text[:length]))


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"[]", "a list; want an object"),
        (b"null", "a NoneType; want an object"),
        (b"3", "a int; want an object"),
        (pickle.dumps({"format": 1}), "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"tree":' * 5_000 + b"1" + b"}" * 5_000, "nested too deeply"),
    ],
    ids=["list", "null", "number", "pickle", "bytes", "deep list", "deep object"],
)
def test_what_is_no_model_at_all_is_refused(written, content, cause):
    with pytest.raises(ModelError, match=rf"model\.json: {cause}"):
        load_model(written(content))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"gone\.json: No such file"):
        load_model(tmp_path / "gone.json")
    with pytest.raises(ModelError, match="Is a directory"):
        load_model(tmp_path)


def test_a_model_is_a_shipped_ones_name_or_a_path(tmp_path):
    assert model_path("lab") == LAB
    assert model_path("starter") == STARTER
    assert model_path("./lab") == Path("lab")
    assert model_path(str(tmp_path / "own.json")) == tmp_path / "own.json"


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_shipped_models_can_be_used(name):
    assert load_model(model_path(name)).name == name
