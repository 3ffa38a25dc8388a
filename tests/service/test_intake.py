"""POST /v1/samples: each bad input is one clear error, is counted, and changes nothing."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dial.intake.inbox import SampleInbox
from dial.intake.samples import MAX_BODY_BYTES, REASONS
from dial.metrics import Metrics

TOKEN = "correct-horse-battery-staple"
NOW_S = 1_000_000.0
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def post(metrics: dict[str, Any] | None = None, at_s: float = NOW_S, **changes: Any) -> bytes:
    sample = {"at_s": at_s, "interval_s": 1.0, "metrics": metrics or {"cpu_usr_cores": 0.5}}
    body = {"version": 1, "backend": "s1", "agent": "vm1:42", "samples": [sample], **changes}
    return json.dumps(body).encode()


def counted(metrics: Metrics, name: str, **labels: str) -> float:
    value = metrics.registry.get_sample_value(name, labels)
    assert value is not None
    return value


def refused_in_all(metrics: Metrics) -> float:
    return sum(counted(metrics, "dial_sample_batches_refused_total", reason=r) for r in REASONS)


async def test_a_good_post_reaches_the_inbox_and_is_counted(
    client: httpx.AsyncClient, inbox: SampleInbox, metrics: Metrics
) -> None:
    body = post({"cpu_usr_cores": 0.5, "gpu_cores": 1})
    answer = await client.post("/v1/samples", content=body, headers=BEARER)
    assert answer.status_code == 202
    assert answer.json() == {
        "accepted": 1,
        "duplicates": 0,
        "superseded": 0,
        "evicted": 0,
        "unknown_metrics": 1,
        "agent_changed": False,
    }
    again = await client.post("/v1/samples", content=body, headers=BEARER)
    assert again.json()["duplicates"] == 1
    assert counted(metrics, "dial_samples_accepted_total") == 1
    assert counted(metrics, "dial_samples_dropped_total", reason="duplicate") == 1
    assert counted(metrics, "dial_sample_metrics_unknown_total") == 2
    assert [s.cpu_usr_cores for s in inbox.take(NOW_S)["s1"]] == [0.5]


@pytest.mark.parametrize(
    ("body", "status", "code", "where"),
    [
        (post({"cpu_usr_cores": math.nan}), 422, "not_finite", "samples[0].metrics.cpu_usr_cores"),
        (post({"cpu_usr_cores": math.inf}), 422, "not_finite", "samples[0].metrics.cpu_usr_cores"),
        (post({"cpu_usr_cores": -1.0}), 422, "negative", "samples[0].metrics.cpu_usr_cores"),
        (post({"psi_io_full_fraction": 2}), 422, "out_of_range", "psi_io_full_fraction"),
        (post(at_s=NOW_S - 3600), 422, "stale", "samples[0].at_s"),
        (post(at_s=NOW_S + 60), 422, "future", "samples[0].at_s"),
        (post(backend="s9"), 422, "unknown_backend", "backend"),
        (post(version=2), 400, "version", "version"),
        (post(samples=[{}] * 121), 413, "too_many", "samples"),
        (post(agent="x" * 257), 422, "too_long", "agent"),
        (b"{", 400, "malformed", "body"),
        (b"", 400, "malformed", "body"),
        (b" " * (MAX_BODY_BYTES + 1), 413, "too_large", "body"),
    ],
)
async def test_bad_input_is_one_error_is_counted_and_changes_nothing(
    client: httpx.AsyncClient,
    inbox: SampleInbox,
    metrics: Metrics,
    body: bytes,
    status: int,
    code: str,
    where: str,
) -> None:
    answer = await client.post("/v1/samples", content=body, headers=BEARER)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert where in error["where"]
    assert error["message"]
    assert set(answer.json()) == {"error"}
    assert set(error) == {"code", "message", "where"}
    assert refused_in_all(metrics) == 1
    assert counted(metrics, "dial_sample_batches_refused_total", reason=code) == 1
    assert counted(metrics, "dial_samples_accepted_total") == 0
    assert inbox.take(NOW_S) == {}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer \xe9\xff",
    ],
)
async def test_a_wrong_token_is_401_counted_and_not_repeated(
    client: httpx.AsyncClient, inbox: SampleInbox, metrics: Metrics, header: str | None
) -> None:
    headers = {} if header is None else {b"Authorization": header.encode("latin-1")}
    answer = await client.post("/v1/samples", content=post(), headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer.json()["error"]["code"] == "unauthorized"
    assert TOKEN not in answer.text
    assert 'wrong"' not in answer.text
    assert counted(metrics, "dial_sample_batches_refused_total", reason="unauthorized") == 1
    assert inbox.take(NOW_S) == {}


async def test_the_scheme_is_read_in_any_case(client: httpx.AsyncClient) -> None:
    headers = {"Authorization": f"bearer {TOKEN}"}
    assert (await client.post("/v1/samples", content=post(), headers=headers)).status_code == 202


async def test_without_a_configured_token_writes_are_forbidden(
    make_app: Callable[[str | None], FastAPI], inbox: SampleInbox, metrics: Metrics
) -> None:
    transport = httpx.ASGITransport(make_app(None))
    async with httpx.AsyncClient(transport=transport, base_url="http://dial") as client:
        answer = await client.post("/v1/samples", content=post(), headers=BEARER)
    assert answer.status_code == 403
    assert "no agent token is configured" in answer.json()["error"]["message"]
    assert counted(metrics, "dial_sample_batches_refused_total", reason="no_token") == 1
    assert inbox.take(NOW_S) == {}


async def test_before_the_first_reading_samples_are_to_be_sent_again(
    client: httpx.AsyncClient, inbox: SampleInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_pending", None)
    answer = await client.post("/v1/samples", content=post(), headers=BEARER)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert answer.headers["Retry-After"] == "5"


async def test_a_chunked_body_is_cut_off_at_the_limit_while_it_is_read(
    client: httpx.AsyncClient,
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 10 * MAX_BODY_BYTES:
            sent += 65_536
            yield b" " * 65_536

    answer = await client.post("/v1/samples", content=endless(), headers=BEARER)
    assert answer.status_code == 413
    assert answer.headers["Connection"] == "close"
    assert sent <= MAX_BODY_BYTES + 65_536


async def test_without_a_token_the_body_is_not_even_read(client: httpx.AsyncClient) -> None:
    async def body() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""

    assert (await client.post("/v1/samples", content=body())).status_code == 401


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
bodies = st.binary(max_size=100) | st.one_of(
    json_values,
    st.fixed_dictionaries(
        {
            "version": st.just(1) | json_values,
            "backend": st.sampled_from(["s1", "s2", "s9"]) | json_values,
            "agent": st.just("vm1:42") | json_values,
            "samples": st.lists(
                st.fixed_dictionaries(
                    {
                        "at_s": st.floats(NOW_S - 100, NOW_S + 10) | json_values,
                        "interval_s": st.floats(),
                        "metrics": st.dictionaries(
                            st.sampled_from(["cpu_usr_cores", "psi_cpu_some_fraction", "new"]),
                            st.floats() | json_values,
                        ),
                    }
                ),
                max_size=3,
            ),
        }
    ),
).map(lambda value: json.dumps(value).encode())


# The fixtures are shared by all examples on purpose: no example may break the next.
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(body=bodies)
def test_no_body_whatever_is_answered_with_a_500(
    app: FastAPI, metrics: Metrics, body: bytes
) -> None:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://dial") as client:
            return await client.post("/v1/samples", content=body, headers=BEARER)

    before = refused_in_all(metrics)
    answer = asyncio.run(send())
    if answer.status_code == 202:
        assert refused_in_all(metrics) == before
    else:
        assert 400 <= answer.status_code < 500
        assert set(answer.json()["error"]) == {"code", "message", "where"}
        assert refused_in_all(metrics) == before + 1
