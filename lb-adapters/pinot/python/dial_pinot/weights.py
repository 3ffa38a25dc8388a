"""The document that brokers follow, and the places where it is put.

The format is the same over HTTP, in ZooKeeper and in a file (``docs/wire-formats.md``)::

    {"format": 1, "version": 1795211945123456, "at_s": 1795211950.5, "valid_s": 30,
     "weights": {"Server_10.0.0.2_8098": 24, "Server_10.0.0.3_8098": 138}}

``version`` grows with each change of the weights, ``at_s`` with each renewal; a broker forgets
weights that were not renewed for ``valid_s``.  A version is the time of its writing in
microseconds, and always more than the last one: no state has to survive a restart.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, Field, ValidationError

from dial.errors import BalancerRefused, BalancerUnreachable
from dial_pinot.rest import PinotRest

FORMAT = 1
FIELD = "document"
"""Simple field of the ZooKeeper node (a ZNRecord) that holds the JSON."""


@dataclass(frozen=True, slots=True)
class Document:
    """Weights as brokers are to have them.

    Attributes
    ----------
    version
        Microseconds since the epoch when these weights were decided; never goes backwards.
    at_s
        When they were last stood by, seconds since the epoch.
    valid_s
        For how long they hold from then on.
    weights
        By name of the server.
    """

    version: int
    at_s: float
    valid_s: float
    weights: Mapping[str, int]

    def encode(self) -> str:
        """The document as JSON."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": self.version,
                "at_s": self.at_s,
                "valid_s": self.valid_s,
                "weights": dict(self.weights),
            }
        )

    def is_valid(self, now_s: float) -> bool:
        """Whether brokers whose clock is ours would take it."""
        return abs(now_s - self.at_s) < self.valid_s


class _Wire(BaseModel):
    format: Literal[1]
    version: Annotated[int, Field(ge=0, strict=True)]
    at_s: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    valid_s: Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)]
    weights: Annotated[
        dict[str, Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]],
        Field(min_length=1, max_length=10_000),
    ]


def decode(text: str | bytes, where: str) -> Document:
    """Read a document.

    Raises
    ------
    BalancerRefused
        If it is none; the message names where it stands and the field at fault.
    """
    try:
        wire = _Wire.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        field = field if field.isprintable() else repr(field)
        message = problem["msg"] if problem["msg"].isprintable() else repr(problem["msg"])
        raise BalancerRefused(
            f"{where}: {field or 'document'}: {message}; not written over: take it away"
        ) from error
    weights = {name: round(weight) for name, weight in wire.weights.items()}
    return Document(wire.version, wire.at_s, wire.valid_s, weights)


class Store(Protocol):
    """Where the document is put."""

    async def read(self) -> Document | None:
        """What stands there; ``None`` if nothing does.

        Raises
        ------
        BalancerUnreachable, BalancerRefused
        """

    async def write(self, document: Document) -> None:
        """Put it there, whole or not at all.

        Raises
        ------
        BalancerUnreachable, BalancerRefused
        """


class FeedStore:
    """In memory: DIAL's own service hands it out (``GET /v1/weights``)."""

    def __init__(self) -> None:
        self._document: Document | None = None

    async def read(self) -> Document | None:
        """What was last written."""
        return self._document

    async def write(self, document: Document) -> None:
        """Keep it."""
        self._document = document


class FileStore:
    """A file on this machine or on one that it shares with the brokers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> Document | None:
        """What the file holds."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BalancerUnreachable(f"weights {self._path}: {error.strerror}") from error
        # One that was made for its permissions holds nothing yet.
        return decode(text, f"weights {self._path}") if text.strip() else None

    async def write(self, document: Document) -> None:
        """Replace the file, so that no broker reads half of it."""
        try:
            _replace(self._path, document.encode())
        except OSError as error:
            raise BalancerUnreachable(f"weights {self._path}: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=".dial-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            # Brokers run as another user; weights are no secret.
            os.fchmod(file.fileno(), 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class ZooKeeperStore:
    """A node of Pinot's property store, by way of Pinot's controller: no client of our own."""

    def __init__(self, path: str, rest: PinotRest) -> None:
        self._path = path
        self._rest = rest

    async def read(self) -> Document | None:
        """What the node holds."""
        node = await self._rest.node(self._path)
        if node is None:
            return None
        fields = node.get("simpleFields")
        text = fields.get(FIELD) if isinstance(fields, dict) else None
        if not isinstance(text, str):
            raise BalancerRefused(f"weights zookeeper:{self._path}: a node of something else")
        return decode(text, f"weights zookeeper:{self._path}")

    async def write(self, document: Document) -> None:
        """Set the node, and make it the first time."""
        name = self._path.rpartition("/")[2]
        record = {
            "id": name,
            "simpleFields": {FIELD: document.encode()},
            "mapFields": {},
            "listFields": {},
        }
        await self._rest.set_node(self._path, record)
