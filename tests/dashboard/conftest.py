"""The real application on a real socket, fed with made-up snapshots, and a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from pydantic import SecretStr

from dial.clock import ManualClock
from dial.intake.inbox import SampleInbox
from dial.intake.orders import OrderBook
from dial.metrics import Metrics
from dial.model import LAB, load_model
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.server import serve
from dial.service.token import Tokens
from dial.settings import AdapterSettings, ApiSettings, Settings
from dial.types import BalancerState, Mode
from tests.browser import chromium

from .pools import NOW_S, Pool

OPERATOR = "the-operators-own-token"


@dataclass
class Served:
    """A service that is up."""

    url: str
    pool: Pool
    parts: Parts

    def tick(self, *, slow: bool | None = None) -> None:
        """Publish one more tick, with the orders that hold."""
        self.pool.orders = self.parts.orders.now()
        self.parts.publisher.publish(self.pool.next(slow=slow))


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serving() -> Serve:
    """Serve a pool, with an operator's token and, where asked for, one for readers."""

    @asynccontextmanager
    async def start(pool: Pool, *, read: str | None = None, port: int = 0) -> AsyncIterator[Served]:
        mode = Mode.SHADOW if pool.mode is Mode.SHADOW else Mode.ENFORCE
        settings = Settings(service="checkout", mode=mode, adapter=AdapterSettings(name="haproxy"))
        clock = ManualClock(NOW_S)
        parts = Parts(
            settings,
            load_model(LAB),
            publisher=pool.publisher,
            inbox=SampleInbox(),
            orders=OrderBook(settings, clock),
            metrics=Metrics(),
            clock=clock,
            tokens=Tokens(
                agent=SecretStr("an-agents-token"),
                read=SecretStr(read) if read else None,
                operator=SecretStr(OPERATOR),
            ),
        )
        observation = pool.publisher.current.observation
        if observation is not None:
            servers = tuple(b.server for b in observation.backends)
            parts.orders.set_pool(BalancerState("1", "roundrobin", observation.meaning, servers))
        async with serve(create_app(parts), ApiSettings(port=port)) as port:
            try:
                yield Served(f"http://127.0.0.1:{port}", pool, parts)
            finally:
                pool.publisher.end()

    return start


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found
