"""Every tick as a JSON line, and the way back.

A recording is a file of JSON lines.  The first holds what a replay starts from (settings
without secrets, the model itself, the state); then comes one line per tick with the
observation and the plan, and one per write to the balancer with its report::

    {"kind": "header", "format": 2, "dial": "0.1.0", "policy": {...}, "state": {...}}
    {"kind": "tick", "observation": {...}, "plan": {...}}
    {"kind": "applied", "report": {...}}

Floats are written in the shortest form that reads back as the same bits, so a plan can be
compared exactly.  Files are turned at a size, each turned file has a header of its own and
can be replayed alone.  A line is flushed when it is written: after a crash at most the
last line is cut short, and the reader says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

import dial
from dial.controller.policy import PolicySource
from dial.controller.state import State
from dial.errors import RecordingError
from dial.settings import RecordSettings, describe
from dial.types import ApplyReport, Observation, Plan

FORMAT = 2
"""Format 1 differs in what is remembered of the backends, so that it is read where that is nothing:
from a controller's start on."""

_STATE = TypeAdapter(State)
_OBSERVATION = TypeAdapter(Observation)
_PLAN = TypeAdapter(Plan)
_REPORT = TypeAdapter(ApplyReport)


class Header(BaseModel):
    """The first line."""

    model_config = ConfigDict(frozen=True)

    format: int
    dial: str
    policy: PolicySource
    state: State


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick as recorded."""

    line: int
    observation: Observation
    plan: Plan


def plan_json(plan: Plan) -> bytes:
    """The plan as recorded: two plans are the same when these bytes are."""
    return _PLAN.dump_json(plan)


class Recorder:
    """Appends ticks to a file, and turns it at a size.

    Parameters
    ----------
    settings : path, size and number of files.  An existing file is turned, not overwritten.
    source : what a replay needs to rebuild the policy.
    """

    def __init__(self, settings: RecordSettings, source: PolicySource) -> None:
        if settings.path is None:
            raise ValueError("record.path is not set")
        self._path = settings.path
        self._limit_bytes = int(settings.max_mib * 2**20)
        self._keep = settings.keep
        self._source = source
        self._file: IO[bytes] | None = None
        self._written_bytes = 0

    def tick(self, before: State, observation: Observation, plan: Plan) -> None:
        """Write one tick; ``before`` is the state it started from."""
        if self._file is None or self._written_bytes >= self._limit_bytes:
            self._turn(before)
        self._write(
            b'{"kind":"tick","observation":%b,"plan":%b}\n'
            % (_OBSERVATION.dump_json(observation), plan_json(plan))
        )

    def applied(self, report: ApplyReport) -> None:
        """Write what came of a plan."""
        if self._file is not None:
            self._write(b'{"kind":"applied","report":%b}\n' % _REPORT.dump_json(report))

    def close(self) -> None:
        """Close the file; the recorder can be used again and then begins a new one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: bytes) -> None:
        assert self._file is not None  # noqa: S101 - only called with a file open
        self._file.write(line)
        self._file.flush()
        self._written_bytes += len(line)

    def _turn(self, state: State) -> None:
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for number in range(self._keep - 1, 0, -1):
            younger = self._turned(number - 1) if number > 1 else self._path
            if younger.exists():
                younger.replace(self._turned(number))
        self._file = self._path.open("wb")
        self._written_bytes = 0
        header = {"kind": "header", "format": FORMAT, "dial": dial.__version__}
        self._write(
            b'%b,"policy":%b,"state":%b}\n'
            % (
                json.dumps(header).encode()[:-1],
                self._source.model_dump_json().encode(),
                _STATE.dump_json(state),
            )
        )

    def _turned(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class Recording:
    """Reads a recording back, line by line.

    Parameters
    ----------
    path : of the file.

    Attributes
    ----------
    header
        What the recording starts from.
    truncated
        True after reading when the last line had been cut short.

    Raises
    ------
    RecordingError
        If the file cannot be read or is no recording of this format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = False
        try:
            with path.open("rb") as file:
                first = file.readline()
        except OSError as error:
            raise RecordingError(f"{path}: {error.strerror}") from error
        document = self._parse(1, first)
        if document.get("kind") != "header" or document.get("format") not in (1, FORMAT):
            raise RecordingError(
                f"{path}, line 1: not the header of a recording of format {FORMAT}"
            )
        if document["format"] != FORMAT and _remembers(document.get("state")):
            raise RecordingError(
                f"{path}, line 1: of format {document['format']} and begun after the controller's "
                "start: what it had learnt by then can no longer be read"
            )
        try:
            self.header = Header.model_validate(document)
        except ValidationError as error:
            raise RecordingError(f"{path}, line 1: {describe(error)}") from error

    def ticks(self) -> Iterator[Tick]:
        """The ticks in order."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    self.truncated = True
                    return
                if number == 1:
                    continue
                document = self._parse(number, line)
                if document.get("kind") != "tick":
                    continue
                try:
                    observation = _OBSERVATION.validate_python(document.get("observation"))
                    plan = _PLAN.validate_python(document.get("plan"))
                except ValidationError as error:
                    raise RecordingError(
                        f"{self.path}, line {number}: {describe(error)}"
                    ) from error
                yield Tick(number, observation, plan)

    def _parse(self, number: int, line: bytes) -> dict[str, object]:
        try:
            document = json.loads(line, parse_float=_finite, parse_constant=_finite)
        except ValueError as error:
            raise RecordingError(f"{self.path}, line {number}: not JSON: {error}") from error
        except RecursionError as error:
            raise RecordingError(f"{self.path}, line {number}: nested too deeply") from error
        if not isinstance(document, dict):
            raise RecordingError(f"{self.path}, line {number}: want an object")
        return document


def _remembers(state: object) -> bool:
    return isinstance(state, dict) and bool(state.get("backends"))


def _finite(text: str) -> float:
    """A number as JSON has it: json alone would take NaN, and 1e999 as infinite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number
