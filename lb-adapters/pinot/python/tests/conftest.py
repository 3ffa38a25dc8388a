"""The conformance suite's harness around a fake Pinot; weights by feed, file and ZooKeeper node."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import dial_pinot
from dial_pinot.testing import SERVERS, TABLE, FakePinot

NODE = "/PinotCluster/PROPERTYSTORE/DIAL/weights"


def bound() -> socket.socket:
    """A socket on a free port, listening, so that nobody else can take the port."""
    return socket.create_server(("127.0.0.1", 0))


class Harness:
    """One adapter and the Pinot it looks after."""

    def __init__(self, folder: Path, weights: str, log: str) -> None:
        self.backends = SERVERS
        listener = bound()
        with bound() as probe:  # free a moment ago: the adapter takes it at once
            log_port = probe.getsockname()[1]
        self.log_file = folder / "querylog.log"
        self.log_file.touch()
        self.log_url = f"http://127.0.0.1:{log_port}"
        self.pinot = FakePinot(listener, self.log_url, self.in_force)
        where = {"file": f"file:{folder / 'weights.json'}", "zookeeper": f"zookeeper:{NODE}"}
        followed = where.get(weights, "http://127.0.0.1:9180/v1/weights")
        self.pinot.jvm_arguments = [f"-Ddial.weights={followed}"]
        self.adapter = dial_pinot.create(
            TABLE,
            {
                "pinot": self.pinot.url,
                "brokers": [self.pinot.url],
                "weights": where.get(weights, weights),
                "log": f"file:{self.log_file}" if log == "file" else self.log_url,
                "timezone": "UTC",
                "refresh_s": 0.0,
                "poll_s": 0.01,
                "check_wait_s": 0.05,
            },
        )
        if log == "file":
            self.pinot.post = self.append  # type: ignore[method-assign]

    async def in_force(self) -> Mapping[str, float] | None:
        document = await self.adapter._store.read()
        return None if document is None else document.weights

    async def append(self, lines: list[str]) -> None:
        """What log4j2 would write."""
        now = datetime.now(UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        head = f"{now} INFO [QueryLogger] [jersey-server-managed-async-executor-1] "
        tail = ",offlineThreadCpuTimeNs(total/thread/sysActivity/resSer):0/0/0/0,query=SELECT 1"
        with self.log_file.open("a") as file:
            file.writelines(f"{head}{line}{tail}\n" for line in lines)

    async def log_ready(self) -> None:
        await self.adapter.log_opened()

    async def send(self, requests: int) -> None:
        if not self.adapter._log.opened.is_set():
            await self.adapter.read()  # which opens the log, for its counters
        await self.pinot.query(requests)

    async def garble(self, lines: int) -> None:
        await self.pinot.post(["requestId=nonsense"] * lines)

    async def restart(self) -> None:
        self.pinot.restart()

    async def stop(self) -> None:
        await self.pinot.stop()


@pytest.fixture
def make_harness(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Harness]]:
    @asynccontextmanager
    async def make(weights: str = "feed", log: str = "http") -> AsyncIterator[Harness]:
        harness = Harness(tmp_path, weights, log)
        await harness.pinot.start()
        try:
            yield harness
        finally:
            await harness.adapter.aclose()
            await harness.pinot.stop()

    return make
