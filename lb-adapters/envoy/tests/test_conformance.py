"""The suite that every adapter passes, on the fake and on a real Envoy."""

from __future__ import annotations

import pytest_asyncio

from dial.conformance import AdapterConformance


class TestFakeIncremental(AdapterConformance):
    @pytest_asyncio.fixture
    async def harness(self, fake_harness):
        async with fake_harness() as harness:
            yield harness


class TestFakeStateOfTheWorld(AdapterConformance):
    @pytest_asyncio.fixture
    async def harness(self, fake_harness):
        async with fake_harness(is_delta=False) as harness:
            yield harness


class RealEnvoy(AdapterConformance):
    lb_policy = "ROUND_ROBIN"
    discovery = "delta"

    @pytest_asyncio.fixture
    async def harness(self, real_harness):
        async with real_harness(self.lb_policy, self.discovery) as harness:
            yield harness


class TestRoundRobinByEds(RealEnvoy):
    pass


class TestLeastRequestByAds(RealEnvoy):
    lb_policy = "LEAST_REQUEST"
    discovery = "ads"


class TestRoundRobinByFiles(RealEnvoy):
    discovery = "file"
