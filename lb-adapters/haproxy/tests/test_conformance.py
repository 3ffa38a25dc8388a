"""The suite that every adapter passes, on the fake and on a real HAProxy."""

from __future__ import annotations

import pytest_asyncio

from dial.conformance import AdapterConformance


class TestFake(AdapterConformance):
    @pytest_asyncio.fixture
    async def harness(self, fake_harness):
        async with fake_harness() as harness:
            yield harness


class RealHAProxy(AdapterConformance):
    balance = "roundrobin"
    log = "tcp"
    reloads = False
    by_delay = False

    @pytest_asyncio.fixture
    async def harness(self, real_harness):
        async with real_harness(
            self.balance, self.log, reloads=self.reloads, by_delay=self.by_delay
        ) as harness:
            yield harness


class TestRoundRobinOverARing(RealHAProxy):
    pass


class TestLeastConnOverARingWithReloads(RealHAProxy):
    balance = "leastconn"
    reloads = True


class TestExpectedDelayOverARing(RealHAProxy):
    balance = "leastconn"
    by_delay = True


class TestRandomOverSyslog(RealHAProxy):
    balance = "random(2)"
    log = "syslog"


class TestRoundRobinOverAUnixDatagramSocketWithReloads(RealHAProxy):
    log = "unixgram"
    reloads = True
