"""How many requests one address may send."""

from __future__ import annotations

from dataclasses import replace

import httpx

from dial.clock import ManualClock
from dial.metrics import Metrics
from dial.service.app import create_app
from dial.service.limits import RateLimit
from dial.service.parts import Parts
from dial.settings import ApiSettings


def client_of(parts: Parts, rate_per_s: float, address: str = "192.0.2.1") -> httpx.AsyncClient:
    api = ApiSettings(rate_per_s=rate_per_s)
    app = create_app(replace(parts, settings=parts.settings.model_copy(update={"api": api})))
    transport = httpx.ASGITransport(app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://dial")


async def test_beyond_the_rate_the_answer_is_429_until_time_has_passed(
    parts: Parts, clock: ManualClock, metrics: Metrics
) -> None:
    async with client_of(parts, rate_per_s=2.0) as client:  # five seconds' worth are 10
        statuses = [(await client.get("/healthz")).status_code for _ in range(11)]
        assert statuses == [200] * 10 + [429]
        answer = await client.get("/v1/state")
        assert answer.json()["error"] == {
            "code": "too_many_requests",
            "message": "more than 2 requests a second from 192.0.2.1 (api.rate_per_s)",
            "where": "/v1/state",
        }
        assert answer.headers["retry-after"] == "1"
        assert metrics.registry.get_sample_value("dial_api_requests_limited_total") == 2
        clock.advance(1.0)
        statuses = [(await client.get("/healthz")).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]


async def test_zero_is_no_limit(parts: Parts) -> None:
    async with client_of(parts, rate_per_s=0.0) as client:
        assert {(await client.get("/healthz")).status_code for _ in range(50)} == {200}


async def test_one_address_does_not_spend_anothers_and_the_table_is_bounded(
    clock: ManualClock, monkeypatch
) -> None:
    monkeypatch.setattr("dial.service.limits.MAX_ADDRESSES", 3)
    limit = RateLimit(lambda *_: None, 0.2, clock, lambda: None)  # 1 at once
    assert [limit._take("a"), limit._take("a"), limit._take("b")] == [True, False, True]
    for address in ("c", "d", "e"):
        limit._take(address)
    assert set(limit._buckets) == {"c", "d", "e"}
