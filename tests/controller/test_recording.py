"""Recordings: what is written reads back as the same bits and gives the same plans."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dial.controller.noise import Costs
from dial.controller.recording import Recorder, Recording
from dial.controller.replay import replay
from dial.controller.state import State
from dial.controller.step import step
from dial.errors import RecordingError
from dial.settings import RecordSettings
from dial.types import ApplyReport, NoData, RequestWindow


@pytest.fixture
def recorded(service, policy_source, tmp_path):
    """A recording of a neighbour that comes and goes, and the path of its file."""

    def record(**settings):
        service.rho_bg["s1"] = 0.5
        service.run(10)
        service.rho_bg.clear()
        service.run(15)
        path = tmp_path / "recording.jsonl"
        recorder = Recorder(RecordSettings(path=path, **settings), policy_source)
        state = State()
        for observation in service.observations:
            before = state
            state, plan = step(service.policy, before, observation)
            recorder.tick(before, observation, plan)
        recorder.applied(ApplyReport(1, 2.0, (("s1", 3),), (("s1", 3),)))
        recorder.close()
        return path

    return record


def test_a_replay_gives_every_plan_again_bit_for_bit(recorded, service):
    result = replay(recorded())
    assert result.ticks == len(service.plans) == 45
    assert result.mismatches == ()
    assert not result.truncated


def test_a_plan_that_was_changed_afterwards_is_found_by_tick_and_field(recorded):
    path = recorded()
    lines = path.read_text().splitlines(keepends=True)
    tick = json.loads(lines[25])
    tick["plan"]["backends"][0]["share"] += 1e-15
    lines[25] = json.dumps(tick) + "\n"
    path.write_text("".join(lines))
    (mismatch,) = replay(path).mismatches
    assert (mismatch.tick, mismatch.what) == (25, "backends")


def test_observations_that_were_changed_afterwards_change_the_plans(recorded):
    path = recorded()
    text = path.read_text()
    path.write_text(text.replace('"cpu_capacity_cores":0.3', '"cpu_capacity_cores":0.6'))
    assert replay(path).mismatches != ()


def test_a_line_cut_short_by_a_crash_is_left_out_and_said(recorded):
    path = recorded()
    lines = path.read_bytes().splitlines(keepends=True)
    # The last line is the report; cut the tick before it in two.
    path.write_bytes(b"".join(lines[:-2]) + lines[-2][:100])
    result = replay(path)
    assert result.ticks == 44
    assert result.truncated


def test_each_turned_file_replays_alone(recorded, tmp_path):
    path = recorded(max_mib=0.02, keep=3)
    files = sorted(tmp_path.glob("recording.jsonl*"))
    assert [f.name for f in files] == [
        "recording.jsonl",
        "recording.jsonl.1",
        "recording.jsonl.2",
    ]
    for file in files:
        result = replay(file)
        assert result.ticks > 0
        assert result.mismatches == ()
    assert Recording(path).header.state != State()


def test_an_existing_file_is_turned_not_overwritten(recorded, tmp_path):
    (tmp_path / "recording.jsonl").write_text("an earlier run\n")
    recorded()
    assert (tmp_path / "recording.jsonl.1").read_text() == "an earlier run\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "line 1: not JSON"),
        ("[]\n", "line 1: want an object"),
        ('{"kind":"tick"}\n', "line 1: not the header"),
        ('{"kind":"header","format":99}\n', "not the header of a recording of format 2"),
        ('{"kind":"header","format":2,"dial":"0"}\n', "line 1: policy"),
        ('{"kind":"header","format":1,"dial":"0"}\n', "line 1: policy"),
        ('{"kind":"header","format":1,"state":{"backends":{"s1":{}}}}\n', "of format 1 and begun"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_line(tmp_path, content, says):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(RecordingError, match=says):
        replay(path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda known: known["peak"].pop("rate_sum"), "rate_sum: this column is missing"),
        (lambda known: known["uneasy_intervals"].append(0), "4 rows, where others have 3"),
        (lambda known: known["cusum"].update(mean=["x"] * 3), "mean: could not convert"),
        (lambda known: known["cusum"].update(learnt=[0.5] * 3), "learnt: not a column of its kind"),
        (lambda known: known["curve"].update(weight=7), "weight: want a list"),
        (lambda known: known.update(curve=[]), "QuietCurve: want its columns by name"),
    ],
    ids=["missing", "longer", "words", "fractions", "number", "no columns"],
)
def test_columns_that_are_damaged_are_refused_with_their_name(recorded, damage, says):
    path = recorded(max_mib=0.1)
    header, *ticks = path.read_text().splitlines(keepends=True)
    document = json.loads(header)
    damage(document["state"]["backends"]["known"])
    path.write_text("".join((json.dumps(document) + "\n", *ticks)))
    with pytest.raises(RecordingError, match=says):
        replay(path)


def test_a_recording_of_before_costs_were_learnt_begins_with_none(recorded):
    path = recorded(max_mib=0.1)
    header, *ticks = path.read_text().splitlines(keepends=True)
    there = Recording(path).header.state.backends.known
    document = json.loads(header)
    del document["state"]["backends"]["known"]["costs"]
    path.write_text("".join((json.dumps(document) + "\n", *ticks)))
    known = Recording(path).header.state.backends.known
    assert known == there.but(costs=Costs.blank(3))
    assert there.costs != known.costs


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RecordingError, match=r"nowhere\.jsonl: No such file"):
        replay(tmp_path / "nowhere.jsonl")


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(recorded):
    path = recorded()
    lines = path.read_text().splitlines(keepends=True)
    lines[4] = "garbage\n"
    path.write_text("".join(lines))
    with pytest.raises(RecordingError, match="line 5: not JSON"):
        replay(path)


def test_no_secret_or_address_is_in_a_recording(recorded):
    header = json.loads(recorded().read_text().splitlines()[0])
    assert set(header) == {"kind", "format", "dial", "policy", "state"}
    assert set(header["policy"]) == {
        "percentile",
        "detector",
        "estimator",
        "strategies",
        "guards",
        "peak_rps",
        "model",
        "interval_s",
    }


measured = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.builds(NoData, st.text()))


@given(
    st.builds(
        RequestWindow,
        st.integers(0),
        st.integers(0),
        st.floats(0, 1e300),
        measured,
        st.integers(0),
        measured,
        measured,
    )
)
def test_every_finite_measurement_survives_the_way_through_json(window):
    codec = TypeAdapter(RequestWindow)
    assert codec.validate_json(codec.dump_json(window)) == window
