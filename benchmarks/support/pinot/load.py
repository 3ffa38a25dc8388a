"""Queries at random times, by a seed, and what became of them."""
# ruff: noqa: S608 - names and numbers of our own

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx


@dataclass(frozen=True, slots=True)
class Answer:
    """One query."""

    at_s: float
    """Since the beginning of its block, when it was due."""
    latency_ms: float
    """From the moment it was due."""
    ok: bool
    """Answered, whole, without an exception."""
    said: str
    """What went wrong."""


def sql(table: str, choose: random.Random) -> str:
    """One of three kinds: a count by filter, an aggregation, a group by (paper, 5.3)."""
    kind = choose.random()
    if kind < 0.5:
        return f"SELECT COUNT(*) FROM {table} WHERE member = {choose.randrange(50_000)}"
    if kind < 0.8:
        country = f"c{choose.randrange(40)}"
        return f"SELECT AVG(duration_ms), MAX(duration_ms) FROM {table} WHERE country = '{country}'"
    return (
        f"SELECT country, COUNT(*), SUM(duration_ms) FROM {table} WHERE duration_ms > "
        f"{choose.randrange(60_000)} GROUP BY country ORDER BY COUNT(*) DESC LIMIT 10"
    )


async def ask(
    brokers: Sequence[str], table: str, rate_per_s: float, seconds: float, seed: int
) -> list[Answer]:
    """Poisson arrivals, open loop: a slow answer delays no other query."""
    choose = random.Random(seed)  # noqa: S311 - load, not a secret
    limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
    async with httpx.AsyncClient(timeout=20.0, limits=limits, trust_env=False) as client:
        begin_s = time.monotonic()
        due_s = 0.0
        asking: list[asyncio.Task[Answer]] = []
        while True:
            due_s += choose.expovariate(rate_per_s)
            if due_s >= seconds:
                break
            query = sql(table, choose)
            broker = brokers[len(asking) % len(brokers)]
            await asyncio.sleep(max(0.0, begin_s + due_s - time.monotonic()))
            asking.append(asyncio.create_task(_one(client, broker, query, begin_s, due_s)))
        return list(await asyncio.gather(*asking))


async def _one(
    client: httpx.AsyncClient, broker: str, query: str, begin_s: float, due_s: float
) -> Answer:
    said = ""
    try:
        answer = await client.post(f"{broker}/query/sql", json={"sql": query})
        body = answer.json()
        if not answer.is_success or body.get("exceptions") or body.get("partialResult"):
            said = str(body.get("exceptions") or answer.status_code)[:300]
    except (httpx.HTTPError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
    latency_ms = 1e3 * (time.monotonic() - begin_s - due_s)
    return Answer(due_s, latency_ms, not said, said)
