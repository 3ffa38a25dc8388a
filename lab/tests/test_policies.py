"""Which balancer has which policy, and Envoy's own one that goes by load reports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dial.errors import LabError
from dial_envoy.example import envoy_binary
from dial_lab import envoy
from dial_lab.addresses import Address, free_ports, wait_for_port
from dial_lab.loadgen import SERVED_BY
from dial_lab.policies import anywhere, policy
from dial_lab.processes import Children


def test_a_policy_is_looked_up_where_there_is_one() -> None:
    assert anywhere("leastconn").lb == "haproxy"
    assert anywhere("leastrequest").lb == "envoy"
    assert anywhere("dial-paper", 2.0).interval_s == 2.0
    assert policy("dial", lb="envoy").lb == "envoy"
    with pytest.raises(LabError, match="--policy none-such"):
        anywhere("none-such")


def test_what_learns_is_what_has_a_controller_or_explores() -> None:
    learning = {name for name in ("dial", "knapsack", "leastconn", "ice") if policy(name).learns}
    assert learning == {"dial", "knapsack"}
    # Nine ticks of 10 s; ten steps of exploring, of 5 s or more.
    assert policy("dial-paper").learns_s == 90.0
    assert 50.0 < policy("knapsack").learns_s < 90.0


class Server:
    """Answers at once, and reports how busy it is if it is asked."""

    def __init__(self, utilisation: float) -> None:
        self._report = (
            f"endpoint-load-metrics: TEXT application_utilization={utilisation}, "
            "rps_fractional=50.0\r\n"
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        assert "endpoint-load-metrics-format: text" in head
        text = f"HTTP/1.1 200 OK\r\n{self._report}Content-Length: 0\r\nConnection: close\r\n\r\n"
        writer.write(text.encode())
        await writer.drain()
        writer.close()


async def ask(port: int) -> str:
    """One request; who answered it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    head = (await reader.read()).decode("ascii").lower()
    writer.close()
    assert head.startswith("http/1.1 200"), head
    return next(line for line in head.splitlines() if line.startswith(SERVED_BY))[-2:]


async def test_envoy_weighs_servers_by_what_they_report(tmp_path: Path) -> None:
    if envoy_binary() is None:
        pytest.skip("envoy is not installed")
    listening = {
        name: await asyncio.start_server(Server(utilisation).serve, "127.0.0.1", 0)
        for name, utilisation in (("s1", 0.9), ("s2", 0.1))
    }
    addresses = {
        name: Address("127.0.0.1", each.sockets[0].getsockname()[1])
        for name, each in listening.items()
    }
    balancer = envoy.Balancer(*free_ports(2))
    with Children(tmp_path) as children:
        lb_policy = policy("cswrr", lb="envoy").lb_policy
        text = envoy.config(lb_policy, addresses, balancer, new_connections=True)
        await asyncio.to_thread(envoy.start, children, tmp_path, text)
        await asyncio.to_thread(
            wait_for_port, Address("127.0.0.1", balancer.port), children, wait_s=20.0
        )
        # 50/0.9 and 50/0.1: a tenth goes to s1.  By even weights 12 or 13 of 25 would.
        async with asyncio.timeout(20.0):
            while [await ask(balancer.port) for _ in range(25)].count("s2") < 20:
                pass
    for each in listening.values():
        each.close()
