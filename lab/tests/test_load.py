"""Generator, application and balancer together, without machines (no root needed)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dial.errors import LabError
from dial_lab import app, haproxy
from dial_lab.addresses import Address, free_ports, wait_for_port
from dial_lab.calibration import saturation_rps
from dial_lab.client import BROKEN, Pool, header, precise_loop
from dial_lab.loadgen import Results
from dial_lab.policies import POLICIES, of_balancer, policy
from dial_lab.processes import Children
from dial_lab.resources import CPU

SERVERS = ("s1", "s2")


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not installed")
    with Children(tmp_path) as running:
        yield running


def start_apps(children: Children) -> dict[str, Address]:
    ports = free_ports(len(SERVERS))
    addresses = {n: Address("127.0.0.1", p) for n, p in zip(SERVERS, ports, strict=True)}
    for name, address in addresses.items():
        path = str(Path(app.__file__))
        children.start(name, [sys.executable, "-I", "-S", path, "--port", str(address.port)])
        wait_for_port(address, children)
    return addresses


def ask(port: int, target: str) -> tuple[int, bytes]:
    async def once() -> tuple[int, bytes]:
        done: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        pool = Pool("127.0.0.1", port)
        pool.get(target, lambda status, head: done.set_result((status, head)))
        answered = await asyncio.wait_for(done, 10.0)
        await pool.aclose()
        return answered

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(once())


def test_app_answers_and_refuses_over_the_wire(children: Children) -> None:
    port = start_apps(children)["s1"].port
    status, head = ask(port, "/work?bytes=123")
    assert (status, header(head, b"content-length")) == (200, b"123")
    assert ask(port, "/work?cpu_us=x")[0] == 400
    assert ask(port, "/nothing")[0] == 404


def test_nobody_at_home_is_a_broken_request() -> None:
    (port,) = free_ports(1)
    assert ask(port, "/work")[0] == BROKEN


def test_calibration_refuses_a_server_that_does_not_serve(children: Children) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not installed")
    balancer = haproxy.Balancer(*free_ports(1), children.log_dir / "s")
    # A pool whose only server is not there: HAProxy answers 503.
    text = haproxy.config("roundrobin", {"s1": Address("127.0.0.1", free_ports(1)[0])}, balancer)
    haproxy.start(children, children.log_dir, text, balancer)
    with pytest.raises(LabError, match=r"the app answered (503|0)"):
        saturation_rps(Address("127.0.0.1", balancer.port), CPU.cost, 0.5)


@pytest.mark.parametrize("name", of_balancer("haproxy"))
def test_every_policy_spreads_the_planned_requests_over_all_servers(
    name: str, children: Children
) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not installed")
    addresses = start_apps(children)
    port, log_port = free_ports(2)
    balancer = haproxy.Balancer(port, children.log_dir / "s")
    # The log has nobody to listen to it here, which must not hinder a request.
    text = haproxy.config(
        POLICIES[name].balance, addresses, balancer, log_port if POLICIES[name].controlled else None
    )
    haproxy.start(children, children.log_dir, text, balancer)
    out = children.log_dir / "r.npz"
    options = f"--port={port} --backends=s1,s2 --seed=3 --rate=150 --duration=1.5 --out={out}"
    argv = [sys.executable, "-m", "dial_lab.loadgen", *options.split()]
    argv.append(f"--start={time.monotonic() + 0.5}")
    subprocess.run(argv, check=True, timeout=30, stdout=subprocess.DEVNULL)
    results = Results.load(out)
    assert results.ok.all()
    assert set(results.backend) == {0, 1}
    assert (results.latency_ms > 0.0).all()
    assert not np.isnan(results.late_ms).any()


def test_a_program_that_dies_is_reported_with_its_last_words(children: Children) -> None:
    process = children.start("oops", ["sh", "-c", "echo it broke >&2; exit 3"])
    process.wait(10)
    with pytest.raises(LabError, match=r"oops ended with code 3: it broke"):
        children.check()


def test_unknown_policy_is_refused_with_a_list() -> None:
    with pytest.raises(
        LabError, match=r"--policy fastest: no such policy of HAProxy; allowed: roundrobin"
    ):
        policy("fastest")


def test_interval_changes_controllers_only() -> None:
    assert policy("dial", 5.0).interval_s == 5.0
    assert policy("leastconn", 5.0).interval_s is None
