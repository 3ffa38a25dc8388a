"""The suite that every adapter passes, on posts and on a followed log."""

from __future__ import annotations

import pytest_asyncio

from dial.conformance import AdapterConformance


class TestFeedAndPosts(AdapterConformance):
    weights = "feed"
    log = "http"

    @pytest_asyncio.fixture
    async def harness(self, make_harness):
        async with make_harness(self.weights, self.log) as harness:
            yield harness


class TestFileAndFollowedLog(TestFeedAndPosts):
    weights = "file"
    log = "file"
