"""Rivals of ours, in a real HAProxy, before servers that answer when the test says so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dial_lab import haproxy
from dial_lab.addresses import Address, free_ports
from dial_lab.processes import Children
from dial_lab.topology import private_directory

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Server:
    """Answers a request when it is let go, or at once."""

    def __init__(self) -> None:
        self.asked = 0
        self.arrivals: asyncio.Queue[None] = asyncio.Queue()
        self.waiting: list[asyncio.Event] = []
        self.holds = False
        self.takes_s = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        self.arrivals.put_nowait(None)
        if self.holds:
            event = asyncio.Event()
            self.waiting.append(event)
            await event.wait()
        await asyncio.sleep(self.takes_s)
        writer.write(ANSWER)
        await writer.drain()
        writer.close()


class Front:
    """Two servers behind a HAProxy that chooses by a rival's rule."""

    def __init__(self, port: int, socket: Path, servers: dict[str, Server]) -> None:
        self.port, self.socket, self.servers = port, socket, servers

    async def ask(self) -> str:
        """One request; who answered it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        head = (await reader.read()).decode("ascii").lower()
        writer.close()
        assert head.startswith("http/1.1 200"), head
        field = haproxy.SERVED_BY.lower()
        return next(line for line in head.splitlines() if line.startswith(field))[-2:]

    async def asked(self, name: str, requests: int) -> None:
        """Wait until a server has been asked so often."""
        async with asyncio.timeout(5.0):
            while self.servers[name].asked < requests:
                await self.servers[name].arrivals.get()

    async def until(self, name: str, times: int) -> None:
        """Ask until one server answers so often in a row: weights are not looked at at once."""
        async with asyncio.timeout(5.0):
            row = 0
            while row < times:
                row = row + 1 if await self.ask() == name else 0


@asynccontextmanager
async def front(rival: str, directory: Path, **variables: str) -> AsyncIterator[Front]:
    (port,) = free_ports(1)
    servers = {"s1": Server(), "s2": Server()}
    listening = {
        name: await asyncio.start_server(server.serve, "127.0.0.1", 0)
        for name, server in servers.items()
    }
    addresses = {
        name: Address("127.0.0.1", each.sockets[0].getsockname()[1])
        for name, each in listening.items()
    }
    with private_directory() as private, Children(directory) as children:
        balancer = haproxy.Balancer(port, haproxy.socket_in(private))
        text = haproxy.config(
            "roundrobin", addresses, balancer, rival=rival, rival_variables=variables
        )
        await asyncio.to_thread(haproxy.start, children, directory, text, balancer)
        yield Front(port, balancer.socket, servers)
        for server in servers.values():
            for event in server.waiting:
                event.set()
        for each in listening.values():
            each.close()


async def test_the_oracle_sends_where_a_request_is_served_soonest(tmp_path: Path) -> None:
    async with front("oracle", tmp_path) as lab:
        await asyncio.to_thread(haproxy.tell, lab.socket, "s2", 0.3)
        # (0 + 1)/1 against (0 + 1)/0.3.
        await lab.until("s1", 6)
        lab.servers["s1"].holds = True
        before = lab.servers["s1"].asked
        asks = [asyncio.create_task(lab.ask()) for _ in range(3)]
        await lab.asked("s1", before + 3)
        # (3 + 1)/1 = 4 against 1/0.3 = 3.3.
        assert await lab.ask() == "s2"
        lab.servers["s1"].holds = False
        for event in lab.servers["s1"].waiting:
            event.set()
        assert set(await asyncio.gather(*asks)) == {"s1"}
        await lab.until("s1", 6)


async def test_peak_ewma_leaves_who_was_slow_once(tmp_path: Path) -> None:
    async with front("peak-ewma", tmp_path) as lab:
        assert Counter([await lab.ask() for _ in range(2)]) == {"s1": 1, "s2": 1}
        lab.servers["s1"].takes_s = 0.2
        while lab.servers["s1"].asked < 2:
            await lab.ask()
        # 200 ms against less than a few: it takes seconds for that to fade.
        assert {await lab.ask() for _ in range(20)} == {"s2"}


async def test_prequal_goes_by_latency_and_leaves_who_is_hot(tmp_path: Path) -> None:
    async with front("prequal", tmp_path) as lab:
        lab.servers["s1"].takes_s = 0.05
        for _ in range(4):
            await lab.ask()
        # Both are known, and s2 is the faster one.
        assert {await lab.ask() for _ in range(10)} == {"s2"}
        lab.servers["s2"].holds = True
        asks = [asyncio.create_task(lab.ask())]
        await lab.asked("s2", lab.servers["s2"].asked + 1)
        # s2 holds one more than 0.84 of the late readings: hot, whatever its latency was.
        assert await lab.ask() == "s1"
        for event in lab.servers["s2"].waiting:
            event.set()
        await asyncio.gather(*asks)


async def test_knapsack_explores_and_then_gives_the_faster_one_nearly_all(tmp_path: Path) -> None:
    memory = tmp_path / "curves"
    # The second one remembers what the first one explored.
    for number in (1, 2):
        directory = tmp_path / str(number)
        directory.mkdir()
        async with (
            asyncio.timeout(30.0),
            front("knapsack", directory, SETTING="0.5", MEMORY=str(memory)) as lab,
        ):
            lab.servers["s2"].takes_s = 0.02
            row = 0
            while row < 20:
                asked = await asyncio.gather(*(lab.ask() for _ in range(4)))
                # While it explores, whoever is explored may well be given twenty in a row.
                row = row + 4 if memory.exists() and set(asked) == {"s1"} else 0
        assert [line.split()[0] for line in memory.read_text().splitlines()] == ["s1", "s2"]


def test_ice_brings_the_utilisation_of_a_vm_with_a_neighbour_to_its_threshold(
    lua: Callable[..., list[str]], tmp_path: Path
) -> None:
    usage = tmp_path / "cpuacct.usage"
    text = f"""
local rule = loadfile("{haproxy.RIVALS}/ice.lua")({{ setting = 0.2 }})
local s1 = {{ name = "s1", left = 0.5, weight = 100, configured = 100 }}
local function at(ns)
  local file = io.open("{usage}", "w")
  file:write(ns, "\\n")
  file:close()
  rule.tick({{ s1 }}, 1.0)
  s1.weight = s1.wants or s1.weight
  print(s1.weight)
end
at(0)           -- the first reading says nothing yet
at(120000000)   -- 0.12 s of 0.3 cores: 0.4
at(150000000)   -- 0.1
at(153000000)   -- 0.01: twice as much and no more
s1.left = 1.0
at(200000000)   -- the neighbour is gone
"""
    environment = {"RIVAL_USAGE_s1": str(usage), "RIVAL_CORES_s1": "0.3"}
    assert lua(text, **environment) == ["100", "50", "100", "100", "100"]


def test_a_rule_that_is_not_there_keeps_haproxy_from_starting(tmp_path: Path) -> None:
    with private_directory() as private, Children(tmp_path) as children:
        balancer = haproxy.Balancer(1, haproxy.socket_in(private))
        text = haproxy.config("roundrobin", {}, balancer, rival="none-such")
        with pytest.raises(haproxy.LabError, match="none-such"):
            haproxy.start(children, tmp_path, text, balancer)
