"""Bytes of a post to checked samples: what is taken, and what each refusal says."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.errors import IntakeError
from dial.intake.samples import MAX_BODY_BYTES, MAX_SAMPLES, REASONS, WireBatch, decode_batch
from dial.types import METRIC_NAMES, NoData


def post(metrics: dict[str, Any] | None = None, **changes: Any) -> bytes:
    sample = {"at_s": 1000.0, "interval_s": 1.0, "metrics": metrics or {}}
    sample |= {k: changes.pop(k) for k in ("at_s", "interval_s") if k in changes}
    body = {"version": 1, "backend": "s1", "agent": "vm1:42", "samples": [sample], **changes}
    return json.dumps(body).encode()


def refusal(body: bytes) -> IntakeError:
    with pytest.raises(IntakeError) as caught:
        decode_batch(body)
    assert caught.value.reason in REASONS
    return caught.value


def test_a_value_an_absence_and_a_metric_not_sent_are_three_things() -> None:
    batch = decode_batch(
        post({"cpu_usr_cores": 0.25, "cpu_steal_cores": {"no_data": "no such counter"}})
    )
    (sample,) = batch.samples
    assert (batch.backend, batch.agent) == ("s1", "vm1:42")
    assert (sample.at_s, sample.interval_s) == (1000.0, 1.0)
    assert sample.cpu_usr_cores == 0.25
    assert sample.cpu_steal_cores == NoData("no such counter")
    assert sample.cpu_sys_cores == NoData("not sent")


def test_an_unknown_metric_is_counted_and_ignored_whatever_its_value() -> None:
    newer = {"gpu_cores": 1.0, "histogram": [1, 2], "odd": "text", "cpu_usr_cores": 1}
    batch = decode_batch(post(newer))
    assert batch.unknown_metrics == 3
    assert batch.samples[0].cpu_usr_cores == 1.0


def test_an_agent_older_than_a_metric_has_not_sent_it() -> None:
    older = {name: 0.5 for name in METRIC_NAMES if name != "memory_reload_ns"}
    (sample,) = decode_batch(post(older)).samples
    assert sample.memory_reload_ns == NoData("not sent")
    assert sample.psi_memory_some_fraction == 0.5


def test_a_fraction_a_clock_tick_above_one_is_one() -> None:
    (sample,) = decode_batch(post({"disk_busy_fraction": 1.04})).samples
    assert sample.disk_busy_fraction == 1.0


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("cpu_usr_cores", math.nan, "not_finite"),
        ("cpu_usr_cores", math.inf, "not_finite"),
        ("cpu_usr_cores", -math.inf, "not_finite"),
        ("cpu_usr_cores", -0.1, "negative"),
        ("net_rx_bytes_per_s", -1, "negative"),
        ("psi_cpu_some_fraction", 1.06, "out_of_range"),
        ("disk_bytes_per_s", 1e16, "out_of_range"),
        ("disk_bytes_per_s", 10**400, "out_of_range"),
        ("cpu_usr_cores", True, "malformed"),
        ("cpu_usr_cores", "0.1", "malformed"),
        ("cpu_usr_cores", None, "malformed"),
        ("cpu_usr_cores", [], "malformed"),
        ("cpu_usr_cores", {"nodata": "misspelt"}, "malformed"),
        ("cpu_usr_cores", {"no_data": "x" * 201}, "too_long"),
        ("cpu_usr_cores", {"no_data": "\x1b[2J"}, "malformed"),
    ],
)
def test_a_bad_value_is_refused_with_backend_and_field(
    name: str, value: object, reason: str
) -> None:
    error = refusal(post({name: value}))
    assert error.reason == reason
    assert "'s1'" in str(error)
    assert error.where.startswith(f"samples[0].metrics.{name}")
    assert error.where in str(error)
    assert "\x1b" not in str(error)


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_every_metric_refuses_nan_and_negative(name: str) -> None:
    assert refusal(post({name: math.nan})).reason == "not_finite"
    assert refusal(post({name: -1e-9})).reason == "negative"


@pytest.mark.parametrize(
    ("interval_s", "reason"),
    [(0.0, "interval"), (-1.0, "interval"), (3600.1, "interval"), (math.nan, "not_finite")],
)
def test_an_interval_is_more_than_zero_and_at_most_an_hour(interval_s: float, reason: str) -> None:
    error = refusal(post(interval_s=interval_s))
    assert (error.reason, error.where) == (reason, "samples[0].interval_s")
    assert "3600" in str(error)


def test_a_time_that_is_not_finite_is_refused() -> None:
    error = refusal(post(at_s=math.inf))
    assert (error.reason, error.where) == ("not_finite", "samples[0].at_s")


@pytest.mark.parametrize("version", [0, 2, "1", True, 1.0])
def test_another_version_is_named_even_if_its_shape_differs(version: object) -> None:
    error = refusal(json.dumps({"version": version, "rows": []}).encode())
    assert (error.reason, error.where) == ("version", "version")
    assert repr(version) in str(error)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", "body"),
        (b"\xff\xfe", "body"),
        (b"[" * 100_000, "body"),
        (b'"\\ud800"', "body"),
        (b"null", "body"),
        (b"{}", "version"),
        (b'{"version": 1}', "backend"),
        (post(samples=[]), "samples"),
        (post(samples=[1]), "samples[0]"),
        (post(backend=""), "backend"),
        (post(backend="s1\n"), "backend"),
        (post(agent="\u202e"), "agent"),
        (post(at_s="now"), "samples[0].at_s"),
    ],
)
def test_what_is_not_a_post_is_malformed_and_says_where(body: bytes, where: str) -> None:
    error = refusal(body)
    assert (error.reason, error.where) == ("malformed", where)


def test_limits_of_number_length_and_size() -> None:
    sample = {"at_s": 1.0, "interval_s": 1.0, "metrics": {}}
    assert len(decode_batch(post(samples=[sample] * MAX_SAMPLES)).samples) == MAX_SAMPLES
    assert refusal(post(samples=[sample] * (MAX_SAMPLES + 1))).reason == "too_many"
    assert refusal(post({f"m{i}": 0 for i in range(257)})).reason == "too_many"
    long = refusal(post(backend="b" * 257))
    assert long.reason == "too_long"
    assert len(str(long)) < 400  # the error does not send the long string back
    assert refusal(b" " * (MAX_BODY_BYTES + 1)).reason == "too_large"


def test_the_largest_post_that_the_limits_allow_fits_the_body() -> None:
    absent = {name: {"no_data": "x" * 200} for name in METRIC_NAMES}
    sample = {"at_s": 1700000000.123456, "interval_s": 1.000001, "metrics": absent}
    body = post(samples=[sample] * MAX_SAMPLES)
    assert len(body) < MAX_BODY_BYTES
    assert len(decode_batch(body).samples) == MAX_SAMPLES


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
nearly_posts = st.fixed_dictionaries(
    {
        "version": st.just(1) | json_values,
        "backend": st.just("s1") | json_values,
        "agent": st.just("vm1:42") | json_values,
        "samples": json_values
        | st.lists(
            st.fixed_dictionaries(
                {
                    "at_s": st.floats() | json_values,
                    "interval_s": st.floats() | json_values,
                    "metrics": json_values
                    | st.dictionaries(st.sampled_from(METRIC_NAMES), st.floats() | json_values),
                }
            ),
            max_size=3,
        ),
    }
)


@given(st.binary(max_size=200) | (json_values | nearly_posts).map(lambda v: json.dumps(v).encode()))
def test_anything_is_taken_with_sound_values_or_refused_with_our_error(body: bytes) -> None:
    refused = None
    try:
        batch = decode_batch(body)
    except IntakeError as error:
        refused = error
    if refused:
        assert refused.reason in REASONS
        assert str(refused).encode()  # can be put into an answer
        return
    for sample in batch.samples:
        for name in METRIC_NAMES:
            value = getattr(sample, name)
            assert isinstance(value, NoData) or (math.isfinite(value) and value >= 0)


def test_the_published_schema_names_the_fields_of_the_wire() -> None:
    schema = WireBatch.model_json_schema()
    assert set(schema["required"]) == {"version", "backend", "agent", "samples"}


def test_a_field_left_out_is_named_as_such() -> None:
    error = refusal(post(samples=[{"interval_s": 1.0, "metrics": {}}]))
    assert str(error) == "backend 's1': samples[0].at_s: must be given"
