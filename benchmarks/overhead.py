"""What DIAL costs the machine of a balancer: the controller's CPU, and HAProxy's own throughput.

``controller_cpu_fraction``
    Of a core, of a controller that reads the log of 5,000 requests/s through a real HAProxy, in
    ticks of a second, with its service and without agents.  Measured over ``--seconds``.
``offered_per_s``
    What was really answered a second meanwhile.
``throughput_ratio``
    Requests a second through an HAProxy that is asked for as many as it can give, with DIAL's log
    to a controller over the same with its usual httplog to a syslog that reads it: medians of
    paired rounds, which begin in turns with the one and the other.

HAProxy has one thread, alone on the first core; clients, upstream, syslog and controller share the
others.  The upstream is another HAProxy that answers by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO

from benchmarks.support.harness import machine, report, versions
from dial.ports import free_port
from dial_haproxy.config import HTTPLOG, snippet

_DIAL = str(Path(sys.executable).with_name("dial"))
_TICK_HZ = os.sysconf("SC_CLK_TCK")
_SERVERS = 3
_RATE_PER_S = 5_000.0
_CONNECTIONS = 16
_DEPTH = 16
"""Requests under way on one connection: HAProxy answers them one after another."""

_REQUEST = b"GET / HTTP/1.1\r\nHost: app\r\n\r\n"
_TURN_S = 0.01


@dataclass(frozen=True, slots=True)
class Proxy:
    """One HAProxy under test."""

    process: subprocess.Popen[bytes]
    port: int
    socket: Path
    log_port: int


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--seconds", type=float, default=20.0, help="of 5,000 requests/s")
    parser.add_argument("--rounds", type=int, default=9, help="paired, of two seconds each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dial-") as folder, ExitStack() as started:
        result = _measure(Path(folder), started, arguments.seconds, arguments.rounds)
    lines = [
        f"controller: {result['controller_cpu_fraction']:.1%} of a core",
        f"throughput: {result['throughput_ratio']:.3f} of that with the usual httplog",
    ]
    result |= {
        "benchmark": "overhead",
        "machine": machine(),
        "versions": versions("dial-lb", "dial-lb-haproxy", "numpy"),
    }
    report(lines, result, as_json=arguments.json)


def _measure(folder: Path, started: ExitStack, seconds: float, rounds: int) -> dict[str, object]:
    cores = sorted(os.sched_getaffinity(0))
    first, others = {cores[0]}, set(cores[1:]) or {cores[0]}
    os.sched_setaffinity(0, others)
    upstream = free_port()
    _haproxy(folder / "upstream.cfg", started, _upstream(upstream), others)
    _wait_for(upstream)
    dial = _proxy(folder, "dial", started, upstream, first)
    usual = _proxy(folder, "usual", started, upstream, first)
    _run(started, [sys.executable, "-c", _SYSLOG, str(usual.log_port)])
    config = folder / "dial.toml"
    config.write_text(_settings(dial))
    output = started.enter_context((folder / "controller.log").open("wb"))
    controller = _run(started, [_DIAL, "controller", "--config", str(config)], output)
    _wait_for(dial.log_port)

    asyncio.run(_offer(dial.port, _RATE_PER_S, 3.0))  # warm, and a first tick
    used_s, begin_s = _cpu_s(controller), time.monotonic()
    answered = asyncio.run(_offer(dial.port, _RATE_PER_S, seconds))
    took_s = time.monotonic() - begin_s
    fraction = (_cpu_s(controller) - used_s) / took_s
    pairs = []
    for number in range(rounds):
        pair = {}
        for proxy in (dial, usual) if number % 2 else (usual, dial):
            pair[proxy.port] = asyncio.run(_saturate(proxy.port, 2.0))
        pairs.append((pair[dial.port], pair[usual.port]))
    if controller.poll() is not None:
        raise SystemExit((folder / "controller.log").read_text())
    return {
        "controller_cpu_fraction": fraction,
        "offered_per_s": answered / took_s,
        "throughput_ratio": median(ours / theirs for ours, theirs in pairs),
        "throughput_per_s": median(ours for ours, _ in pairs),
        "usual_throughput_per_s": median(theirs for _, theirs in pairs),
        "rounds": rounds,
        "seconds": seconds,
    }


# ---------------------------------------------------------------- clients


async def _offer(port: int, rate_per_s: float, seconds: float) -> int:
    """Send at a rate, whatever the answers do; how many were answered."""
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(_CONNECTIONS)]
    counters = [asyncio.create_task(_count(reader)) for reader, _ in streams]
    loop = asyncio.get_running_loop()
    begin_s, sent = loop.time(), 0
    while (passed_s := loop.time() - begin_s) < seconds:
        due = int(rate_per_s * passed_s) - sent
        for number in range(due):
            streams[(sent + number) % _CONNECTIONS][1].write(_REQUEST)
        sent += due
        await asyncio.sleep(_TURN_S)
    await asyncio.sleep(0.2)
    for _, writer in streams:
        writer.close()
    return sum(await asyncio.gather(*counters))


async def _count(reader: asyncio.StreamReader) -> int:
    """Answers until the connection ends."""
    answers = 0
    carry = b""
    while data := await reader.read(1 << 18):
        data = carry + data
        answers += data.count(b"\r\n\r\n")
        carry = data[-3:] if not data.endswith(b"\r\n\r\n") else b""
    return answers


async def _saturate(port: int, seconds: float) -> float:
    """Answers a second with as many requests under way as are allowed."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + seconds

    async def ask() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = 0
        while loop.time() < until_s:
            writer.write(_REQUEST * _DEPTH)
            for _ in range(_DEPTH):
                await reader.readuntil(b"\r\n\r\n")
            answers += _DEPTH
        writer.close()
        return answers

    begin_s = loop.time()
    answers = sum(await asyncio.gather(*(ask() for _ in range(_CONNECTIONS))))
    return answers / (loop.time() - begin_s)


# ---------------------------------------------------------------- what is started


_SYSLOG = """
import socket, sys
log = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
log.bind(("127.0.0.1", int(sys.argv[1])))
while True:
    log.recv(65536)
"""
"""A syslog that does nothing but read: as little as any costs."""


def _proxy(folder: Path, name: str, started: ExitStack, upstream: int, cores: set[int]) -> Proxy:
    port, log_port, path = free_port(), free_port(), folder / f"{name}.sock"
    text = _proxy_config(port, path, log_port, upstream, with_dial=name == "dial")
    process = _haproxy(folder / f"{name}.cfg", started, text, cores)
    _wait_for(port)
    return Proxy(process, port, path, log_port)


def _proxy_config(port: int, path: Path, log_port: int, upstream: int, *, with_dial: bool) -> str:
    ours = snippet(socket=str(path), log_port=log_port)
    servers = "".join(
        f"    server s{number} 127.0.0.1:{upstream} weight 100\n" for number in range(_SERVERS)
    )
    in_global = ours.in_global if with_dial else f"    log 127.0.0.1:{log_port} local0\n"
    return f"""\
global
    maxconn 2000
    nbthread 1
{in_global}
{ours.section if with_dial else ""}
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s

frontend www
    bind 127.0.0.1:{port}
{ours.in_frontend if with_dial else f"    log global{chr(10)}{HTTPLOG}"}
    default_backend app

backend app
    balance roundrobin
    http-reuse always
{servers}"""


def _upstream(port: int) -> str:
    return f"""\
global
    maxconn 2000
    nbthread 1
defaults
    mode http
    timeout client 60s
frontend answers
    bind 127.0.0.1:{port}
    http-request return status 200
"""


def _settings(proxy: Proxy) -> str:
    return f"""\
service = "app"
[adapter]
name = "haproxy"
[adapter.options]
socket = "{proxy.socket}"
log = "tcp://127.0.0.1:{proxy.log_port}"
[api]
port = 0
"""


def _haproxy(
    config: Path, started: ExitStack, text: str, cores: set[int]
) -> subprocess.Popen[bytes]:
    config.write_text(text)
    process = _run(started, ["haproxy", "-db", "-f", str(config)])
    os.sched_setaffinity(process.pid, cores)
    return process


def _run(
    started: ExitStack, arguments: list[str], output: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(arguments, stdout=output, stderr=output)

    def end() -> None:
        process.kill()
        process.wait()

    started.callback(end)
    return process


def _wait_for(port: int) -> None:
    deadline_s = time.monotonic() + 20.0
    while time.monotonic() < deadline_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nobody listens on port {port}")


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK_HZ


if __name__ == "__main__":
    main()
