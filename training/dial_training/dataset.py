"""The data set: what a controller saw in each tick of each session, and what was true then.

On disk it is one tidy Parquet file: a row for each (session, machine, tick), with the truth,
every field of the request window (``window_...``), of the balancer's state (``server_...``)
and of the agent's sample (``sample_...``), and in the file's metadata what is the same in all
rows.  In memory it is sessions of ticks, whose observations go through
:func:`dial.controller.step.step` as they did when they were recorded.

The columns are derived from the dataclasses, so a field that is added there is a column here.
A file from before has no such column, and reads as ``NoData("not recorded")``; so does an
empty value, because a table has no place for the reason of an absence.

An observation comes back as it was but for two fields: ``epoch`` is the session (a balancer is
started for each, and never restarted within one), ``model_checksum`` is empty (a shadow
controller's model decided nothing that is in the data).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter, ValidationError

from dial.types import (
    AgentSample,
    BackendObservation,
    Cause,
    NoData,
    Observation,
    RequestWindow,
    ServerState,
    WeightMeaning,
)
from dial_training.columns import NOT_RECORDED, Columns
from dial_training.errors import DatasetError

FORMAT = 1

LEARN, STAGE, EDGE, REST = "learn", "stage", "edge", "rest"
"""Phases of a tick: quiet learning at the start, wholly within a stage, partly within one (so
that no label is right), between two stages (queues run empty, the neighbour is gone)."""

_METADATA_KEY = "dial_training"


@dataclass(frozen=True, slots=True)
class Truth:
    """What was really the matter with one machine in one tick."""

    phase: str
    stage: int | None
    """Number of the stage in its session, from 0; ``None`` outside stages."""
    case: str | None
    """Session, stage and machine: the unit of which one label is right."""
    label: Cause
    """``NONE`` outside stages, where nothing is judged."""
    program: str | None
    """The neighbour, or what else brought the machine into its state."""
    rho_bg_asked: float
    """What the neighbour was told to take; 0 without one."""
    rho_bg_true: float | None
    """What it took of the saturation throughput; ``None`` where that was not measured.

    Without a neighbour it is the error of that measurement, a little above or below 0.
    """
    rate_factor: float
    """The tenant's own arrival rate in this stage, over that in learning and rests."""
    cost_factor: float
    """The same for the mean cost of its requests."""


@dataclass(frozen=True, slots=True)
class LabelledTick:
    """One tick of a session."""

    observation: Observation
    truths: Mapping[str, Truth]
    """By machine, which is the backend's name."""


@dataclass(frozen=True, slots=True)
class Session:
    """One recording from start to end: the unit that is never split in cross-validation."""

    session: str
    set: str
    """``train``, ``heldout``, ``unseen`` or ``quiet``."""
    resource: str
    """What the requests of this session are about."""
    load: float
    """rho_fg asked for: the arrival rate over the saturation throughput of all machines."""
    seed: int
    guest: str
    """``shared`` where tenant and neighbour run under one kernel."""
    quiet_rps: Mapping[str, float]
    """Saturation throughput by machine, measured before the session with nobody beside it."""
    ticks: tuple[LabelledTick, ...]

    @property
    def observations(self) -> list[Observation]:
        """In the order of the ticks, as ``step`` wants them."""
        return [tick.observation for tick in self.ticks]

    def cases(self) -> Iterator[Case]:
        """Every machine in every stage, quiet ones included, in order of stage and machine."""
        found: dict[str, list[tuple[int, str, Truth]]] = {}
        for at, tick in enumerate(self.ticks):
            for machine, truth in tick.truths.items():
                if truth.case is not None:
                    found.setdefault(truth.case, []).append((at, machine, truth))
        for case, parts in found.items():
            _, machine, truth = parts[0]
            yield Case(case, self, machine, truth, tuple(at for at, _, _ in parts))


@dataclass(frozen=True, slots=True)
class Case:
    """One machine in one stage."""

    case: str
    session: Session
    machine: str
    truth: Truth
    """The same in all its ticks."""
    at: tuple[int, ...]
    """Its ticks, as indices into the session's."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same in all sessions of a data set."""

    percentile: float
    """The x of T_x."""
    algorithm: str
    meaning: WeightMeaning


_SESSION = Columns(Session, leave_out=("quiet_rps", "ticks"))
_TRUTH = Columns(Truth)
_TICK = Columns(
    Observation,
    leave_out=("epoch", "algorithm", "meaning", "backends", "model_checksum", "orders"),
)
_WINDOW = Columns(RequestWindow, "window_")
_SERVER = Columns(ServerState, "server_")
_SAMPLE = Columns(AgentSample, "sample_")

SCHEMA: dict[str, pl.DataType] = {
    **_SESSION.schema(),
    "machine": pl.String(),
    "quiet_rps": pl.Float64(),
    **_TICK.schema(),
    **_TRUTH.schema(),
    **_WINDOW.schema(),
    **_SERVER.schema(),
    **_SAMPLE.schema(),
}
"""Type by column, in the file's order."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Sessions, and what is the same in all of them."""

    setting: Setting
    sessions: tuple[Session, ...]

    @classmethod
    def load(cls, path: Path) -> Dataset:
        """Read a file.

        Raises
        ------
        DatasetError
            If it cannot be read, is of another format, or lacks what has no default.
        """
        try:
            document = json.loads(pl.read_parquet_metadata(path).get(_METADATA_KEY, "{}"))
            frame = pl.read_parquet(path)
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise DatasetError(f"{path}: no readable Parquet file: {error}") from error
        if document.get("format") != FORMAT:
            raise DatasetError(
                f"{path}: format {document.get('format')}: this version reads format {FORMAT}"
            )
        try:
            setting = _SETTING.validate_python(document.get("setting"))
            return cls(setting, tuple(_sessions(frame, setting)))
        except (ValidationError, DatasetError) as error:
            raise DatasetError(f"{path}: {error}") from error
        except KeyError as error:
            raise DatasetError(f"{path}: column {error}: missing") from error

    def write(self, path: Path) -> None:
        """Write a file that is whole or not there."""
        document = {"format": FORMAT, "setting": asdict(self.setting)}
        part = path.with_name(f"{path.name}.part")
        self.frame().write_parquet(
            part,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            metadata={_METADATA_KEY: json.dumps(document)},
        )
        part.replace(path)

    def frame(self) -> pl.DataFrame:
        """The table of all sessions, ordered by session, tick and machine."""
        return pl.DataFrame(list(_rows(self.sessions)), schema=SCHEMA, orient="row")

    def of_set(self, *names: str) -> Dataset:
        """The sessions of some sets only."""
        return Dataset(self.setting, tuple(s for s in self.sessions if s.set in names))

    def cases(self) -> Iterator[Case]:
        """Those of all sessions."""
        for session in self.sessions:
            yield from session.cases()


_SETTING = TypeAdapter(Setting)
_ZSTD_LEVEL = 19
"""Written once, read often, and kept in version control."""


def merge(parts: Iterable[Dataset]) -> Dataset:
    """All sessions of some data sets, in the order of their ids.

    Raises
    ------
    DatasetError
        If there is none, they were recorded under different settings, or a session is there
        twice.
    """
    found = list(parts)
    if not found:
        raise DatasetError("nothing to merge: no session was recorded yet")
    setting = found[0].setting
    sessions = sorted((s for part in found for s in part.sessions), key=attrgetter("session"))
    for part in found:
        if part.setting != setting:
            raise DatasetError(f"sessions were recorded with {part.setting} and with {setting}")
    for one, next_one in pairwise(sessions):
        if one.session == next_one.session:
            raise DatasetError(f"session {one.session}: recorded twice")
    return Dataset(setting, tuple(sessions))


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _rows(sessions: Iterable[Session]) -> Iterator[dict[str, object]]:
    for session in sessions:
        for tick in session.ticks:
            for backend in tick.observation.backends:
                row = _SESSION.to_row(session) | _TICK.to_row(tick.observation)
                row |= _TRUTH.to_row(tick.truths[backend.name])
                row |= _WINDOW.to_row(backend.window) | _SERVER.to_row(backend.server)
                if not isinstance(backend.sample, NoData):
                    row |= _SAMPLE.to_row(backend.sample)
                row["machine"] = backend.name
                row["quiet_rps"] = session.quiet_rps[backend.name]
                yield {column: row.get(column) for column in SCHEMA}


def _sessions(frame: pl.DataFrame, setting: Setting) -> Iterator[Session]:
    by_session = groupby(frame.iter_rows(named=True), key=lambda row: row.get("session"))
    for _, rows_of_session in by_session:
        rows = list(rows_of_session)
        yield Session(
            **_SESSION.arguments(rows[0]),
            quiet_rps={row["machine"]: row["quiet_rps"] for row in rows},
            ticks=tuple(
                _tick(list(rows_of_tick), setting)
                for _, rows_of_tick in groupby(rows, key=lambda row: row["tick"])
            ),
        )


def _tick(rows: list[dict[str, Any]], setting: Setting) -> LabelledTick:
    observation = Observation(
        **_TICK.arguments(rows[0]),
        epoch=rows[0]["session"],
        algorithm=setting.algorithm,
        meaning=setting.meaning,
        backends=tuple(_backend(row) for row in rows),
        model_checksum="",
    )
    truths = {row["machine"]: Truth(**_TRUTH.arguments(row)) for row in rows}
    return LabelledTick(observation, truths)


def _backend(row: dict[str, Any]) -> BackendObservation:
    sampled = row.get("sample_at_s") is not None
    return BackendObservation(
        name=row["machine"],
        window=RequestWindow(**_WINDOW.arguments(row)),
        sample=AgentSample(**_SAMPLE.arguments(row)) if sampled else NOT_RECORDED,
        server=ServerState(**_SERVER.arguments(row)),
    )
