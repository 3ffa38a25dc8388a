"""The adapter and the broker's plugin on a live Pinot cluster.

Any cluster of 1.5 or newer will do, named by environment variables:

``DIAL_PINOT_CONTROLLER``   http://host:9000
``DIAL_PINOT_BROKER``       http://host:8099, of a broker with the plugin
``DIAL_PINOT_TABLE``        a table with the plugin's selector, such as views_OFFLINE; every server
                            holds every segment
``DIAL_PINOT_WEIGHTS``      the path in the broker's ``-Ddial.weights=file:PATH``
``DIAL_PINOT_LOG``          the address in its ``-Ddial.telemetry=ADDRESS/v1/queries``
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import dial_pinot
from dial.adapter import Severity
from dial.conformance import reading_log

NAMES = ("CONTROLLER", "BROKER", "TABLE", "WEIGHTS", "LOG")
MISSING = [f"DIAL_PINOT_{name}" for name in NAMES if f"DIAL_PINOT_{name}" not in os.environ]

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"no live Pinot cluster is named: {', '.join(MISSING)} not set"
)

VALID_S = 8.0
FOLLOWED_S = 2.0
"""The plugin looks at its file five times a second, once while there was none."""


class Live:
    """A cluster, and an adapter as the controller has it."""

    def __init__(self) -> None:
        named = {name: os.environ[f"DIAL_PINOT_{name}"] for name in NAMES}
        self.broker, self.table = named["BROKER"], named["TABLE"]
        self.weights_file = Path(named["WEIGHTS"])
        self.adapter = dial_pinot.create(
            self.table,
            {
                "pinot": named["CONTROLLER"],
                "brokers": [self.broker],
                "weights": f"file:{self.weights_file}",
                "log": named["LOG"],
                "valid_s": VALID_S,
            },
        )

    async def log_ready(self) -> None:
        await self.adapter.log_opened()

    async def queries(self, times: int) -> None:
        raw = self.table.rpartition("_")[0]
        async with httpx.AsyncClient(timeout=20.0, trust_env=False) as client:
            for _ in range(times):
                answer = await client.post(
                    f"{self.broker}/query/sql", json={"sql": f"SELECT COUNT(*) FROM {raw}"}
                )
                assert answer.json()["exceptions"] == []

    async def met(self, times: int) -> Counter[str]:
        """Which servers so many queries met, as the broker's own log says."""
        async with reading_log(self) as log:
            await asyncio.sleep(1.0)  # what was on its way belongs to others
            before = Counter(log.names())
            await self.queries(times)
            await log.until(rows=sum(before.values()) + times)
            return Counter(log.names()) - before


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    live = Live()
    live.weights_file.unlink(missing_ok=True)
    yield live
    await live.adapter.aclose()
    live.weights_file.unlink(missing_ok=True)


async def servers(live: Live) -> list[str]:
    return [s.name for s in (await live.adapter.read()).servers if s.usable]


async def test_check_finds_no_error_on_a_cluster_that_is_set_up(live):
    found = await live.adapter.check()
    assert [f.what for f in found if f.severity is Severity.ERROR] == []


async def test_queries_meet_servers_by_weight(live):
    first, *others = await servers(live)
    wanted = {first: 20, **dict.fromkeys(others, 100)}
    assert (await live.adapter.apply(wanted, version=1)).ok
    await asyncio.sleep(FOLLOWED_S)
    met = await live.met(220)
    total = sum(wanted.values())
    assert sum(met.values()) == 220, "each query meets one server"
    for name, weight in wanted.items():
        assert met[name] == pytest.approx(220 * weight / total, abs=12)


async def test_a_server_of_weight_0_meets_no_query(live):
    first, *others = await servers(live)
    await live.adapter.apply({first: 0, **dict.fromkeys(others, 100)}, version=1)
    await asyncio.sleep(FOLLOWED_S)
    assert set(await live.met(60)) == set(others)


async def test_garbage_leaves_the_weights_and_their_end_makes_them_even(live):
    first, *others = await servers(live)
    await live.adapter.apply({first: 0, **dict.fromkeys(others, 100)}, version=1)
    await asyncio.sleep(FOLLOWED_S)
    live.weights_file.write_text("garbage")
    await asyncio.sleep(FOLLOWED_S)
    started = asyncio.get_running_loop().time()
    await live.queries(20)  # none of them fails
    await asyncio.sleep(max(0.0, VALID_S - (asyncio.get_running_loop().time() - started)))
    live.weights_file.unlink()
    assert (await live.met(90))[first] == pytest.approx(90 / (1 + len(others)), abs=8)
