"""The data set: what is written comes back, and what cannot be used is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dial.types import (
    AgentSample,
    BackendObservation,
    Cause,
    Measured,
    Named,
    NoData,
    Observation,
    RequestWindow,
    ServerState,
    WeightKind,
    WeightMeaning,
)
from dial_training.columns import NOT_RECORDED, Columns
from dial_training.dataset import (
    SCHEMA,
    Dataset,
    LabelledTick,
    Session,
    Setting,
    Truth,
    merge,
    sha256,
)
from dial_training.errors import DatasetError

SETTING = Setting(90.0, "roundrobin", WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True))
MACHINES = ("s1", "s2")

finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text("abc-/ é", max_size=8)
BY_TYPE: dict[object, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**62), 2**62),
    float: finite,
    bool: st.booleans(),
    str: text,
    Cause: st.sampled_from(Cause),
    Measured: finite | st.just(NOT_RECORDED),
    Named: text | st.just(NOT_RECORDED),
    int | None: st.none() | st.integers(0, 99),
    float | None: st.none() | finite,
    str | None: st.none() | text,
}


def any_of(kind: type[Any], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    drawn = {f.name: BY_TYPE[hints[f.name]] for f in fields(kind) if f.name not in fixed}
    return st.builds(kind, **drawn, **fixed)


def backends(name: str) -> st.SearchStrategy[BackendObservation]:
    return st.builds(
        BackendObservation,
        name=st.just(name),
        window=any_of(RequestWindow),
        sample=st.just(NOT_RECORDED) | any_of(AgentSample),
        server=any_of(ServerState, name=st.just(name)),
    )


@st.composite
def sessions(draw: st.DrawFn, name: str = "a") -> Session:
    ticks = []
    for number in range(1, draw(st.integers(1, 3)) + 1):
        observation = Observation(
            number,
            draw(finite),
            draw(finite),
            name,
            SETTING.algorithm,
            SETTING.meaning,
            tuple(draw(backends(machine)) for machine in MACHINES),
            "",
        )
        ticks.append(LabelledTick(observation, {m: draw(any_of(Truth)) for m in MACHINES}))
    fixed = {
        "session": st.just(name),
        "quiet_rps": st.just({m: draw(finite) for m in MACHINES}),
        "ticks": st.just(tuple(ticks)),
    }
    return draw(any_of(Session, **fixed))


def one_session(name: str = "a", **truth: object) -> Session:
    quiet = Truth("stage", 0, f"{name}/0/s1", Cause.CPU, "hog", 0.5, None, 1.0, 1.0)
    window = RequestWindow(
        **Columns(RequestWindow).arguments(
            {"requests": 1, "errors": 0, "rate_per_s": 0.5, "t_x_requests": 1}
        )
    )
    backend = BackendObservation(
        "s1", window, NoData("no agent"), ServerState("s1", 1, 1, True, 0, 0, 0)
    )
    ticks = tuple(
        LabelledTick(
            Observation(n, 2.0 * n, 2.0, name, "roundrobin", SETTING.meaning, (backend,), ""),
            {"s1": replace(quiet, **truth)},
        )
        for n in (1, 2)
    )
    return Session(name, "train", "cpu", 0.4, 7, "shared", {"s1": 140.0}, ticks)


@settings(max_examples=40, deadline=None)
@given(first=sessions("a"), second=sessions("b"))
def test_what_is_written_comes_back(
    first: Session, second: Session, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("data") / "d.parquet"
    written = Dataset(SETTING, (first, second))
    written.write(path)
    assert Dataset.load(path) == written
    assert [p.name for p in path.parent.iterdir()] == ["d.parquet"]


def test_every_field_of_window_server_and_sample_is_a_column() -> None:
    for kind, prefix in (
        (RequestWindow, "window"),
        (ServerState, "server"),
        (AgentSample, "sample"),
    ):
        assert {f"{prefix}_{f.name}" for f in fields(kind)} <= set(SCHEMA)


def test_reasons_of_absence_are_lost_and_said_to_be() -> None:
    row = Columns(AgentSample).to_row(_sample_with(NoData("agent silent")))
    assert row["cpu_steal_cores"] is None
    assert AgentSample(**Columns(AgentSample).arguments(row)).cpu_steal_cores == NOT_RECORDED


def _sample_with(value: Measured) -> AgentSample:
    hints = get_type_hints(AgentSample)
    given = {
        f.name: value if hints[f.name] in (Measured, Named) else 1.0 for f in fields(AgentSample)
    }
    return AgentSample(**given)


def test_a_file_from_before_a_measurement_existed_reads_as_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    Dataset(SETTING, (one_session(),)).write(path)
    rewrite(path, pl.read_parquet(path).drop("window_t_mean_ms"))
    (session,) = Dataset.load(path).sessions
    assert session.observations[0].backends[0].window.t_mean_ms == NOT_RECORDED


@pytest.mark.parametrize("column", ["window_requests", "machine", "session", "label"])
def test_a_file_without_a_column_that_must_be_is_refused(column: str, tmp_path: Path) -> None:
    path = tmp_path / "short.parquet"
    Dataset(SETTING, (one_session(),)).write(path)
    rewrite(path, pl.read_parquet(path).drop(column))
    with pytest.raises(DatasetError, match=rf"short.parquet: column '?{column}'?: missing"):
        Dataset.load(path)


def rewrite(path: Path, frame: pl.DataFrame, **document: object) -> None:
    metadata = json.loads(pl.read_parquet_metadata(path)["dial_training"]) | document
    frame.write_parquet(path, metadata={"dial_training": json.dumps(metadata)})


def test_other_formats_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    Dataset(SETTING, (one_session(),)).write(path)
    rewrite(path, pl.read_parquet(path), format=99)
    with pytest.raises(DatasetError, match=r"format 99: this version reads format 1"):
        Dataset.load(path)
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(DatasetError, match=r"format None"):
        Dataset.load(path)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DatasetError, match=r"no readable Parquet file"):
        Dataset.load(path)
    with pytest.raises(DatasetError, match=r"no readable Parquet file"):
        Dataset.load(tmp_path / "none.parquet")


def test_merging_gives_the_same_bytes_in_whatever_order(tmp_path: Path) -> None:
    parts = [Dataset(SETTING, (one_session(name),)) for name in "bca"]
    merge(parts).write(tmp_path / "one.parquet")
    merge(reversed(parts)).write(tmp_path / "other.parquet")
    assert sha256(tmp_path / "one.parquet") == sha256(tmp_path / "other.parquet")
    assert [s.session for s in Dataset.load(tmp_path / "one.parquet").sessions] == ["a", "b", "c"]


def test_merging_refuses_twins_strangers_and_nothing() -> None:
    part = Dataset(SETTING, (one_session(),))
    with pytest.raises(DatasetError, match=r"session a: recorded twice"):
        merge([part, part])
    other = Dataset(replace(SETTING, percentile=95.0), (one_session("b"),))
    with pytest.raises(DatasetError, match=r"percentile=95.0"):
        merge([part, other])
    with pytest.raises(DatasetError, match=r"nothing to merge"):
        merge([])


def test_a_case_is_a_machine_in_a_stage_with_all_its_ticks() -> None:
    session = one_session()
    (case,) = session.cases()
    assert (case.case, case.machine, case.at) == ("a/0/s1", "s1", (0, 1))
    assert case.truth.label is Cause.CPU
    assert list(one_session(case=None).cases()) == []
