"""Operators' orders over HTTP, and whose token may do what."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
import structlog
from pydantic import SecretStr

from dial.controller.snapshot import Publisher, Snapshot
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.token import Tokens
from dial.types import Action, BalancerState, Orders

AGENT = {"Authorization": "Bearer correct-horse-battery-staple"}
OPERATOR = {"Authorization": "Bearer the-operators-own-token"}
READER = {"Authorization": "Bearer the-readers-token"}


@pytest.fixture
def pool(parts: Parts, after: Snapshot) -> Parts:
    """A controller that has read its balancer."""
    assert after.observation is not None
    parts.publisher.publish(after)
    servers = tuple(b.server for b in after.observation.backends)
    parts.orders.set_pool(BalancerState("1", "roundrobin", after.observation.meaning, servers))
    return parts


async def test_freeze_and_unfreeze(client: httpx.AsyncClient, parts: Parts) -> None:
    with structlog.testing.capture_logs() as logs:
        answer = await client.put("/v1/freeze", headers=OPERATOR)
    frozen = {
        "mode": "frozen",
        "frozen_since_s": 1_000_000.0,
        "overrides": [],
        "outlives_restart": False,
    }
    assert (answer.status_code, answer.json()) == (200, frozen)
    assert (logs[0]["event"], logs[0]["address"]) == ("frozen by an operator", "127.0.0.1")
    assert (await client.get("/v1/mode")).json() == frozen
    again = await client.put("/v1/freeze", headers=OPERATOR)
    assert again.json() == frozen
    answer = await client.delete("/v1/freeze", headers=OPERATOR)
    assert (answer.json()["mode"], parts.orders.now()) == ("enforce", Orders())


async def test_a_weight_by_hand_begins_and_is_ended(client: httpx.AsyncClient, pool: Parts) -> None:
    answer = await client.put(
        "/v1/overrides/s1", json={"weight": 10, "for_s": 60}, headers=OPERATOR
    )
    order = {"backend": "s1", "weight": 10, "until_s": 1_000_060.0}
    assert (answer.status_code, answer.json()) == (200, order)
    assert (await client.get("/v1/overrides")).json() == [order]
    answer = await client.delete("/v1/overrides/s1", headers=OPERATOR)
    assert (answer.status_code, answer.json()["overrides"]) == (200, [])
    answer = await client.delete("/v1/overrides/s1", headers=OPERATOR)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("backend", "body", "status", "code", "where"),
    [
        ("s9", b'{"weight": 10, "for_s": 60}', 404, "not_found", "backend"),
        ("s1", b'{"weight": 0, "for_s": 60}', 422, "out_of_range", "weight"),
        ("s1", b'{"weight": 257, "for_s": 60}', 422, "out_of_range", "weight"),
        ("s1", b'{"weight": -1, "for_s": 60}', 422, "parameter", "body"),
        ("s1", b'{"weight": 1.5, "for_s": 60}', 422, "parameter", "body"),
        ("s1", b'{"weight": "10", "for_s": 60}', 422, "parameter", "body"),
        ("s1", b'{"weight": 10, "for_s": 0}', 422, "parameter", "body"),
        ("s1", b'{"weight": 10, "for_s": NaN}', 422, "parameter", "body"),
        ("s1", b'{"weight": 10, "for_s": 86401}', 422, "parameter", "body"),
        ("s1", b'{"weight": 10}', 422, "parameter", "body"),
        ("s1", b'{"weight": 10, "for_s": 60, "token": "x"}', 422, "parameter", "body"),
        ("s1", b"[]", 422, "parameter", "body"),
        ("s1", b"{", 400, "malformed", "body"),
        ("s1", b"", 400, "malformed", "body"),
        ("s1", b" " * (2**20 + 1), 413, "too_large", "body"),
        ("x" * 257, b"{}", 422, "parameter", "path.backend"),
    ],
)
async def test_an_order_that_cannot_be_followed_is_one_clear_error(
    client: httpx.AsyncClient,
    pool: Parts,
    backend: str,
    body: bytes,
    status: int,
    code: str,
    where: str,
) -> None:
    answer = await client.put(f"/v1/overrides/{backend}", content=body, headers=OPERATOR)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["where"]) == (status, code, where)
    assert pool.orders.now() == Orders()


async def test_no_weight_by_hand_while_frozen_or_while_they_are_somebody_elses(
    client: httpx.AsyncClient, pool: Parts, publisher: Publisher, after: Snapshot
) -> None:
    order = {"weight": 10, "for_s": 60}
    await client.put("/v1/freeze", headers=OPERATOR)
    answer = await client.put("/v1/overrides/s1", json=order, headers=OPERATOR)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "frozen")
    await client.delete("/v1/freeze", headers=OPERATOR)
    assert after.plan is not None
    plan = replace(after.plan, action=Action.YIELD, reason="weights were set by somebody else")
    publisher.publish(replace(after, plan=plan))
    answer = await client.put("/v1/overrides/s1", json=order, headers=OPERATOR)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "yielded")


# ---------------------------------------------------------------- roles

READS = (
    *("/v1/state", "/v1/backends", "/v1/backends/s1", "/v1/observations", "/v1/verdicts"),
    *("/v1/plans", "/v1/history", "/v1/events", "/v1/mode", "/v1/overrides", "/v1/model"),
    "/metrics",
)


@pytest.fixture
async def closed(pool: Parts) -> httpx.AsyncClient:
    """With a token for each role."""
    tokens = replace(pool.tokens, read=SecretStr("the-readers-token"))
    transport = httpx.ASGITransport(create_app(replace(pool, tokens=tokens)))
    return httpx.AsyncClient(transport=transport, base_url="http://dial")


@pytest.mark.parametrize("path", READS)
async def test_reading_needs_the_readers_or_the_operators_token_where_there_is_one(
    closed: httpx.AsyncClient, path: str
) -> None:
    statuses = [
        (await closed.get(path, headers=headers)).status_code
        for headers in ({}, {"Authorization": "Bearer wrong"}, AGENT, READER, OPERATOR)
    ]
    assert statuses == [401, 401, 403, 200, 200]


@pytest.mark.parametrize("path", ["/", "/assets/main.js", "/healthz", "/openapi.json"])
async def test_what_holds_no_data_is_open(closed: httpx.AsyncClient, path: str) -> None:
    assert (await closed.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/freeze"),
        ("DELETE", "/v1/freeze"),
        ("PUT", "/v1/overrides/s1"),
        ("DELETE", "/v1/overrides/s1"),
    ],
)
async def test_only_the_operators_token_gives_orders(
    closed: httpx.AsyncClient, pool: Parts, method: str, path: str
) -> None:
    for headers, status, code in (
        ({}, 401, "unauthorized"),
        (AGENT, 403, "forbidden"),
        (READER, 403, "forbidden"),
    ):
        answer = await closed.request(method, path, headers=headers, content=b"{}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert pool.orders.now() == Orders()


async def test_only_an_agent_posts_samples(closed: httpx.AsyncClient) -> None:
    for headers, status in ((READER, 403), (OPERATOR, 403), (AGENT, 400)):
        answer = await closed.post("/v1/samples", content=b"{", headers=headers)
        assert answer.status_code == status


async def test_without_an_operators_token_nobody_gives_orders(pool: Parts) -> None:
    app = create_app(replace(pool, tokens=Tokens(agent=pool.tokens.agent)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as client:
        answer = await client.put("/v1/freeze", headers=OPERATOR)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "no_token")
    assert "api.operator_token_file" in answer.json()["error"]["message"]


async def test_no_token_is_ever_in_an_answer_or_a_log(
    closed: httpx.AsyncClient, pool: Parts
) -> None:
    with structlog.testing.capture_logs() as logs:
        texts = [
            (await closed.request(method, path, headers=headers, content=b"{}")).text
            for headers in (AGENT, READER, OPERATOR)
            for method, path in (
                ("GET", "/v1/mode"),
                ("PUT", "/v1/freeze"),
                ("POST", "/v1/samples"),
            )
        ]
    for secret in ("correct-horse-battery-staple", "the-readers-token", "the-operators-own-token"):
        assert not any(secret in text for text in texts)
        assert secret not in repr(logs)
