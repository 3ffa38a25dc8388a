"""Model files: what the classifier and the estimator were taught, as checked JSON.

A model is one JSON document with a card (what it is, how it was made, what it cannot do),
the list of features its tree was made for, the tree, the shape of Eq. 1 by resource, and
a SHA-256 over all of it.  It is data and nothing but data: a pickle would run whatever
its author wrote.

A file that does not fit is refused whole with a :class:`~dial.errors.ModelError`; half a
model is worse than the starter one.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from dial.classifier import FEATURES, Branch, Leaf, Tree
from dial.errors import ModelError
from dial.queueing import TailCurve
from dial.settings import describe
from dial.types import Cause

FORMAT = 1
_SHIPPED = Path(__file__).parent / "shipped_models"
STARTER = _SHIPPED / "starter.json"
"""Hand-written rules, for a start without any training; its card says what it is worth."""
LAB = _SHIPPED / "lab.json"
"""Trained in the lab: the default."""
SHIPPED = {path.stem: path for path in (LAB, STARTER)}
"""By the name that a configuration may give."""

_MAX_DEPTH = 12
"""A tree deeper than this is not one a person can read, which ours must be."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Coefficient = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LeafDocument(_Part):
    """A class."""

    cause: Cause


class BranchDocument(_Part):
    """A comparison of one feature with a threshold."""

    feature: str
    threshold: Finite
    below: TreeDocument
    above: TreeDocument
    missing: Literal["below", "above"] = "below"


def _kind_of_node(node: object) -> str:
    """Leaf or branch, told before it is checked, so that an error speaks of one of the two."""
    is_leaf = "cause" in node if isinstance(node, dict) else isinstance(node, LeafDocument)
    return "leaf" if is_leaf else "branch"


TreeDocument = Annotated[
    Annotated[LeafDocument, Tag("leaf")] | Annotated[BranchDocument, Tag("branch")],
    Discriminator(_kind_of_node),
]


class ShapeDocument(_Part):
    """Coefficients of Eq. 1 over T_x of the idle backend: they add up to 1."""

    c0: Coefficient
    c1: Coefficient
    c2: Coefficient

    @model_validator(mode="after")
    def _is_a_shape(self) -> ShapeDocument:
        if self.c1 == 0.0 and self.c2 == 0.0:
            raise ValueError("c1 and c2 are both 0; at least one must be positive")
        total = self.c0 + self.c1 + self.c2
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ValueError(f"c0 + c1 + c2 = {total!r}; want 1, T_x of the idle backend")
        return self


class ModelDocument(_Part):
    """A model file, without its checksum."""

    format: Literal[1]
    name: str = Field(min_length=1)
    card: dict[str, str]
    features: list[str]
    tree: TreeDocument
    shapes: dict[Cause, ShapeDocument] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_the_features(self) -> ModelDocument:
        if self.features != list(FEATURES):
            raise ValueError(
                f"features are {self.features}; this version needs exactly {list(FEATURES)}, "
                "in that order"
            )
        _check_tree(self.tree, depth=0)
        return self

    @property
    def decision_tree(self) -> Tree:
        """The tree as the classifier wants it."""
        return _tree(self.tree)

    @property
    def tail_shapes(self) -> dict[Cause, TailCurve]:
        """Eq. 1 by resource, over T_x of the idle backend."""
        return {cause: TailCurve(s.c0, s.c1, s.c2) for cause, s in self.shapes.items()}

    def checksum(self) -> str:
        """``sha256:`` and the digest of the canonical JSON of this document."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def load_model(path: Path) -> ModelDocument:
    """Read and check a model file.

    Raises
    ------
    ModelError
        If it cannot be read, is of another format, has other features, or was changed
        after it was made.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path}: not JSON: {error}") from error
    except RecursionError as error:
        raise ModelError(f"{path}: nested too deeply to be a model") from error
    if not isinstance(document, dict):
        raise ModelError(f"{path}: a {type(document).__name__}; want an object")
    if document.get("format") != FORMAT:
        raise ModelError(f"{path}: format {document.get('format')!r}; this version reads {FORMAT}")
    written = document.pop("checksum", None)
    try:
        model = ModelDocument.model_validate(document)
    except ValidationError as error:
        raise ModelError(f"{path}: {describe(error)}") from error
    if written != model.checksum():
        raise ModelError(
            f"{path}: checksum {written!r} but the content has {model.checksum()!r}: "
            "it was changed or cut short after it was made"
        )
    return model


def model_path(model: str) -> Path:
    """The file of a shipped model's name, or the path that ``model`` is."""
    return SHIPPED.get(model, Path(model))


def save_model(model: ModelDocument, path: Path) -> None:
    """Write a model with its checksum, readable by people."""
    document = model.model_dump(mode="json") | {"checksum": model.checksum()}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _check_tree(node: LeafDocument | BranchDocument, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the tree is deeper than {_MAX_DEPTH}")
    if isinstance(node, BranchDocument):
        if node.feature not in FEATURES:
            raise ValueError(f"the tree asks for {node.feature!r}; known: {list(FEATURES)}")
        _check_tree(node.below, depth + 1)
        _check_tree(node.above, depth + 1)


def _tree(node: LeafDocument | BranchDocument) -> Tree:
    if isinstance(node, LeafDocument):
        return Leaf(node.cause)
    return Branch(node.feature, node.threshold, _tree(node.below), _tree(node.above), node.missing)
