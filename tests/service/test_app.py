"""What is shown: state, observations, health, metrics, and one error shape everywhere."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import httpx
import pytest
import structlog
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter
from starlette.types import Message

from dial import __version__
from dial.clock import ManualClock
from dial.controller.snapshot import Publisher, Snapshot
from dial.errors import SettingError
from dial.intake.inbox import SampleInbox
from dial.metrics import Metrics
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.token import Tokens
from dial.service.views import State
from dial.settings import ApiSettings, Settings
from dial.types import Cause, NoData

NOW_S = 1_000_000.0
TOKEN = "correct-horse-battery-staple"


async def test_state_before_the_first_tick_has_no_backends(client: httpx.AsyncClient) -> None:
    state = (await client.get("/v1/state")).json()
    assert (state["service"], state["mode"]) == ("web", "enforce")
    assert (state["tick"], state["backends"], state["report"]) == (None, [], None)


async def test_state_joins_what_was_seen_decided_and_written(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    answer = await client.get("/v1/state")
    state = TypeAdapter(State).validate_json(answer.content)
    s1, s2 = state.backends
    assert (state.version, state.tick, state.action) == (__version__, 7, "shift")
    assert (s1.rate_per_s, s1.t_x_ms, s1.expected_t_x_ms) == (8.0, 40.0, 12.5)
    assert (s1.cause, s1.rho_bg, s1.share) == (Cause.CPU, 0.5, 0.25)
    assert (s1.weight, s1.weight_configured, s1.weight_planned) == (100, 100, 33)
    assert s1.evidence == ("T_x 40 ms, expected 12.5 ms",)
    assert s2.t_x_ms == NoData("no request in this tick")
    assert s1.agent == "no sample"
    assert state.changes == (("s1", 33),)
    assert state.report is not None
    assert state.report.in_effect == (("s1", 33),)


async def test_observations_are_the_last_n_oldest_first(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot
) -> None:
    assert after.observation is not None
    for tick in (7, 8, 9):
        publisher.publish(replace(after, observation=replace(after.observation, tick=tick)))
    answer = await client.get("/v1/observations", params={"last": 2})
    assert [o["tick"] for o in answer.json()] == [8, 9]
    assert answer.json()[0]["backends"][1]["window"]["t_x_ms"] == {
        "reason": "no request in this tick"
    }


@pytest.mark.parametrize("last", ["0", "301", "many", "nan", "1e400"])
async def test_a_parameter_out_of_range_is_422_in_the_one_shape(
    client: httpx.AsyncClient, last: str
) -> None:
    answer = await client.get("/v1/observations", params={"last": last})
    assert answer.status_code == 422
    assert answer.json()["error"]["where"] == "query.last"


async def test_alive_at_once_ready_only_when_in_control(
    client: httpx.AsyncClient,
    publisher: Publisher,
    before: Snapshot,
    after: Snapshot,
    clock: ManualClock,
) -> None:
    assert (await client.get("/healthz")).json()["status"] == "alive"
    publisher.publish(replace(before, trouble="/run/lb.sock: connection refused"))
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert "connection refused" in answer.json()["error"]["message"]

    publisher.publish(after)
    clock.advance(3.0)  # three intervals of 1 s
    assert (await client.get("/readyz")).json() == {"status": "ready", "tick": 7, "age_s": 3.0}
    clock.advance(0.5)
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert "3.5 s old" in answer.json()["error"]["message"]


async def test_one_tick_without_a_reading_does_not_end_readiness_three_do(
    client: httpx.AsyncClient, publisher: Publisher, before: Snapshot, after: Snapshot
) -> None:
    publisher.publish(after)
    statuses = []
    for _ in range(3):
        publisher.publish(replace(before, trouble="no answer"))
        statuses.append((await client.get("/readyz")).status_code)
    assert statuses == [200, 200, 503]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/state/", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/v1/samples", 405, "method_not_allowed"),
        ("DELETE", "/v1/state", 405, "method_not_allowed"),
    ],
)
async def test_the_frameworks_own_errors_have_the_one_shape(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], error["where"]) == (code, path)
    assert method in error["message"]


async def test_a_method_that_is_not_allowed_is_answered_with_all_that_are(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/v1/freeze")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, PUT")


async def test_an_unexpected_failure_is_a_500_logged_without_the_token(
    app: FastAPI, client: httpx.AsyncClient, inbox: SampleInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(inbox, "offer", fail)
    sample = {"at_s": NOW_S, "interval_s": 1.0, "metrics": {}}
    body = {"version": 1, "backend": "s1", "agent": "vm1:42", "samples": [sample]}
    with structlog.testing.capture_logs() as logs:
        answer = await client.post(
            "/v1/samples", json=body, headers={"Authorization": f"Bearer {TOKEN}"}
        )
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "a bug" not in answer.text
    (entry,) = logs
    assert (entry["path"], entry["log_level"]) == ("/v1/samples", "error")
    assert TOKEN not in repr(entry)


async def test_metrics_show_the_snapshot_in_base_units_and_nothing_absent(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot, metrics: Metrics
) -> None:
    publisher.publish(after)
    metrics.ticks.inc()
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (s.name, *sorted(s.labels.values())): s.value
        for family in text_string_to_metric_families(answer.text)
        for s in family.samples
    }
    assert samples["dial_ticks_total",] == 1
    assert samples["dial_backend_weight", "s1"] == 100
    assert samples["dial_backend_response_time_seconds", "s1"] == pytest.approx(0.040)
    assert samples["dial_backend_rho_bg_ratio", "s1"] == 0.5
    assert samples["dial_backend_verdict", "cpu", "s1"] == 1
    assert (samples["dial_mode", "enforce"], samples["dial_mode", "shadow"]) == (1, 0)
    assert samples["dial_plans_total", "release"] == 0  # known before it first happens
    assert ("dial_backend_response_time_seconds", "s2") not in samples
    assert ("dial_backend_rho_bg_ratio", "s2") not in samples


def test_every_metric_has_the_prefix_and_a_help_text(metrics: Metrics, after: Snapshot) -> None:
    metrics.show(after)
    families = list(metrics.registry.collect())
    assert len(families) > 15
    for family in families:
        assert family.name.startswith("dial_")
        assert family.documentation.endswith(".")


async def test_openapi_describes_the_post_and_the_one_error_shape(
    client: httpx.AsyncClient,
) -> None:
    text = (await client.get("/openapi.json")).text
    schema = json.loads(text)
    components = schema["components"]["schemas"]
    samples = schema["paths"]["/v1/samples"]["post"]
    body = samples["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/WireBatch"}
    assert "samples" in components["WireBatch"]["properties"]
    assert samples["responses"]["default"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ErrorAnswer"
    }
    for name in text.split('"#/components/schemas/')[1:]:
        assert name.split('"')[0] in components


async def test_a_float_that_is_not_finite_never_breaks_the_answer(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot
) -> None:
    assert after.observation is not None
    publisher.publish(replace(after, observation=replace(after.observation, interval_s=math.inf)))
    answer = await client.get("/v1/observations")
    assert answer.status_code == 200
    assert answer.json()[0]["interval_s"] is None


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "", "lb.example"])
def test_off_loopback_without_a_token_is_refused(
    parts: Parts, settings: Settings, host: str
) -> None:
    outside = replace(parts, settings=settings.model_copy(update={"api": ApiSettings(host=host)}))
    with pytest.raises(SettingError, match=r"api\.host.*token_file"):
        create_app(replace(outside, tokens=Tokens()))
    create_app(outside)  # with one it is allowed


async def test_a_failure_after_the_answer_began_is_passed_on_to_the_server(app: FastAPI) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            raise OSError("connection lost")

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/healthz",
        "raw_path": b"/healthz",
        "query_string": b"",
        "headers": [],
        "server": ("dial", 80),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "root_path": "",
        "http_version": "1.1",
    }
    with structlog.testing.capture_logs(), pytest.raises(OSError, match="connection lost"):
        await app(scope, receive, send)
    assert [m["type"] for m in sent].count("http.response.start") == 1
