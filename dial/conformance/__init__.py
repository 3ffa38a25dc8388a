"""What an adapter promises, as tests that any adapter's author can run.

Write a :class:`Harness` around your balancer (or a fake of it), and subclass the suite::

    class TestMyBalancer(AdapterConformance):
        @pytest_asyncio.fixture
        async def harness(self):
            async with MyHarness() as harness:
                yield harness

Needs the extra ``dial-lb[conformance]``; nothing else in ``dial`` imports pytest.
"""

from __future__ import annotations

import pytest

# Before the suite is imported: pytest explains failing assertions only in modules it rewrote.
pytest.register_assert_rewrite("dial.conformance.suite", "dial.conformance.harness")

from dial.conformance.harness import Harness, LogReader, reading_log  # noqa: E402
from dial.conformance.suite import AdapterConformance  # noqa: E402

__all__ = ["AdapterConformance", "Harness", "LogReader", "reading_log"]
