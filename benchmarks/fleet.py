"""A fleet on one machine: agents in thousands, a real nats-server, controllers that are killed.

2,000 agents at 1 Hz, each with the product's client and a connection of its own; two readers beside
balancers in memory; two ``dial controller`` of one service in ticks of a second.  A neighbour takes
half of one server, load leaves it, and then:

*killed*: the leader gets SIGKILL.  ``failover_s`` is from there to the first tick of the next
leader that made a plan; ``lost_ticks`` how many were due in between; ``load_went_back`` whether any
plan since then gave the victim more than half of what the others have; ``tick_went_back_by`` how
many ticks old the state was that the next leader went on from.

*stopped*: a third controller joins; the leader gets SIGSTOP, is followed, and goes on (SIGCONT).

``double_writes``
    Plans in the store with a lower term than one before them, in all that happened.
``stale_ticks_told``
    Ticks that a leader announced which had another one after it: it did not know yet, and what it
    would have written was refused.
``agents_sent``, ``agents_refused``, ``agents_late_s``
    Samples that the server took, and did not; how far behind 1 Hz the agents were in the end.
``controller_cpu_fraction``, ``server_cpu_fraction``
    Of a core, of the leader and of nats-server, while nothing happened.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.support.fleet_load import NEIGHBOUR, PEAK_RPS, names_of
from benchmarks.support.harness import machine, report, versions
from dial import subjects
from dial.fleet.link import Link, connect
from dial.fleet.plans import PlanDocument
from dial.settings import FleetSettings

_DIAL = str(Path(sys.executable).with_name("dial"))
_SERVICE = "app"
_WAIT_S = 90.0
_FOREVER_S = 3600.0
_LEARN_TICKS = 15
_TICK_HZ = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--agents", type=int, default=2_000, help="how many")
    parser.add_argument("--seconds", type=float, default=15.0, help="of quiet, for the CPU figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        result = asyncio.run(_measure(Path(folder), processes, arguments.agents, arguments.seconds))
    lines = [
        f"killed leader: next plan after {result['failover_s']:.1f} s",
        f"stopped leader: next plan after {result['stopped_failover_s']:.1f} s",
        f"double writes: {result['double_writes']}",
    ]
    result |= {
        "benchmark": "fleet",
        "machine": machine(),
        "versions": versions("dial-lb", "nats-py"),
    }
    report(lines, result, as_json=arguments.json)


class Watch:
    """What leaders say and write, as anybody can see it."""

    def __init__(self) -> None:
        self.ticks: list[tuple[float, dict[str, object]]] = []
        self.plans: list[PlanDocument] = []
        self._watching: asyncio.Task[None] | None = None

    async def begin(self, link: Link) -> None:
        """Listen from now on."""
        await link.subscribe(subjects.ticks(_SERVICE), self._tick)
        # What the store has taken: a listener on its subject would hear refused writes as well.
        self._watching = asyncio.create_task(self._follow(link))

    async def _follow(self, link: Link) -> None:
        watcher = await link.documents.watch(f"{_SERVICE}.plan")
        while True:
            entry = await watcher.updates(_FOREVER_S)  # type: ignore[no-untyped-call]
            if entry is not None:
                self._plan(entry.value or b"")

    def _tick(self, content: bytes) -> None:
        self.ticks.append((time.monotonic(), json.loads(content)))

    def _plan(self, content: bytes) -> None:
        if content:
            self.plans.append(PlanDocument.model_validate_json(content))

    @property
    def leader(self) -> str:
        """Who made the last plan."""
        return str(self.ticks[-1][1]["leader"]) if self.ticks else ""

    @property
    def shifted(self) -> bool:
        """Whether the victim has less than half of what the others have."""
        weights = self.plans[-1].weights if self.plans else {}
        return bool(weights) and weights.get("s0", 100) < 0.5 * weights.get("s1", 100)

    async def until_led(self, by_other_than: str) -> tuple[float, dict[str, object]]:
        """The first tick of another leader."""
        known = len(self.ticks)
        await _until(
            lambda: any(t["leader"] != by_other_than for _, t in self.ticks[known:]),
            f"somebody else than {by_other_than} leads",
        )
        return next(one for one in self.ticks[known:] if one[1]["leader"] != by_other_than)


async def _measure(
    folder: Path, processes: ExitStack, agents: int, seconds: float
) -> dict[str, object]:
    url, server = _server(folder, processes)
    config = folder / "dial.toml"
    config.write_text(_config(url, agents))
    started: dict[str, subprocess.Popen[str]] = {}

    def start(name: str) -> None:
        arguments = ["controller", "--config", str(config)]
        environment = os.environ | {"DIAL_FLEET__NAME": name}
        started[name] = _started(
            processes, arguments, folder / f"{name}.log", environment, program=_DIAL
        )

    load = ["-m", "benchmarks.support.fleet_load"]
    for name in ("lb-1", "lb-2"):
        _started(processes, [*load, "reader", str(config), name, "2"], folder / f"{name}.log")
    start("dial-1")
    link = await connect(FleetSettings(servers=(url,), name="watch"), Counter())
    watch = Watch()
    await watch.begin(link)
    await _until(lambda: watch.leader == "dial-1", "the first controller leads")
    start("dial-2")
    sending = _started(
        processes, [*load, "agents", str(config), url, _SERVICE, str(agents)], folder / "agents.out"
    )
    learnt = len(watch.ticks) + _LEARN_TICKS
    await _until(lambda: len(watch.ticks) >= learnt, "the quiet past is learnt")
    (folder / NEIGHBOUR).touch()
    await _until(lambda: watch.shifted, "load leaves the victim")
    await asyncio.sleep(5.0)
    used_s = _cpu_s(started["dial-1"]), _cpu_s(server)
    await asyncio.sleep(seconds)
    controller_cpu = (_cpu_s(started["dial-1"]) - used_s[0]) / seconds
    server_cpu = (_cpu_s(server) - used_s[1]) / seconds

    killed = await _failover(watch, started, signal.SIGKILL)
    start("dial-3")
    await asyncio.sleep(10.0)
    last = watch.leader
    stopped = await _failover(watch, started, signal.SIGSTOP)
    started[last].send_signal(signal.SIGCONT)
    await asyncio.sleep(5.0)
    terms = [plan.term for plan in watch.plans]
    told_terms = [int(str(told["term"])) for _, told in watch.ticks]
    sending.terminate()
    sending.wait(10.0)
    sent = json.loads((folder / "agents.out").read_text().splitlines()[-1])
    await link.aclose()
    return {
        "agents": agents,
        "agents_sent": sent["sent"],
        "agents_refused": sent["refused"],
        "agents_late_s": sent["late_s"],
        "failover_s": killed["failover_s"],
        "lost_ticks": killed["lost_ticks"],
        "load_went_back": killed["went_back"] or stopped["went_back"],
        "tick_went_back_by": killed["tick_went_back_by"],
        "stopped_failover_s": stopped["failover_s"],
        "stopped_lost_ticks": stopped["lost_ticks"],
        "double_writes": _falls(terms),
        "stale_ticks_told": _falls(told_terms),
        "plans": len(terms),
        "controller_cpu_fraction": controller_cpu,
        "server_cpu_fraction": server_cpu,
    }


async def _failover(
    watch: Watch, started: dict[str, subprocess.Popen[str]], how: signal.Signals
) -> dict[str, float]:
    """End the leader's life, or stop it, and wait until another one has made a plan."""
    leader = watch.leader
    plans = len(watch.plans)
    last_s, last = watch.ticks[-1]
    started[leader].send_signal(how)
    ended_s = time.monotonic()
    led_s, led = await watch.until_led(by_other_than=leader)
    back = any(
        plan.weights.get("s0", 100) >= 0.5 * plan.weights.get("s1", 100)
        for plan in watch.plans[plans:]
    )
    return {
        "failover_s": led_s - ended_s,
        "lost_ticks": max(0, round(led_s - last_s) - 1),
        "tick_went_back_by": max(0, int(str(last["tick"])) - int(str(led["tick"])) + 1),
        "went_back": back,
    }


def _falls(terms: list[int]) -> int:
    """How often a term comes that is lower than one before it."""
    highest, falls = 0, 0
    for term in terms:
        falls += term < highest
        highest = max(highest, term)
    return falls


def _config(url: str, agents: int) -> str:
    lines = [
        f'service = "{_SERVICE}"',
        'mode = "enforce"',
        "interval_s = 1.0",
        'adapter = {name = "none"}',
        "[api]",
        "port = 0",
        "[fleet]",
        f'servers = ["{url}"]',
        "[backends]",
        *(f"{name}.peak_rps = {PEAK_RPS}" for name in names_of(agents)),
    ]
    return "\n".join(lines) + "\n"


def _server(folder: Path, processes: ExitStack) -> tuple[str, subprocess.Popen[str]]:
    program = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        raise SystemExit("nats-server is not installed: make setup-dev")
    arguments = ["-js", "-sd", str(folder / "js"), "-a", "127.0.0.1", "-p", "-1"]
    server = _started(
        processes,
        [*arguments, "--ports_file_dir", str(folder)],
        folder / "nats.log",
        program=program,
    )
    ports = folder / f"nats-server_{server.pid}.ports"
    deadline_s = time.monotonic() + _WAIT_S
    while not (ports.exists() and ports.read_text()):
        if server.poll() is not None or time.monotonic() > deadline_s:
            raise SystemExit((folder / "nats.log").read_text())
        time.sleep(0.05)
    return str(json.loads(ports.read_text())["nats"][0]), server


def _started(
    processes: ExitStack,
    arguments: list[str],
    output: Path,
    environment: dict[str, str] | None = None,
    *,
    program: str = sys.executable,
) -> subprocess.Popen[str]:
    stream = processes.enter_context(output.open("w"))
    process = subprocess.Popen(
        [program, *arguments], stdout=stream, stderr=subprocess.STDOUT, env=environment, text=True
    )

    def end() -> None:
        process.kill()
        process.wait()

    processes.callback(end)
    return process


def _cpu_s(process: subprocess.Popen[str]) -> float:
    fields = (
        Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    )
    return (int(fields[11]) + int(fields[12])) / _TICK_HZ


async def _until(what: Callable[[], bool], why: str) -> None:
    try:
        async with asyncio.timeout(_WAIT_S):
            while not what():  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise SystemExit(f"did not come about within {_WAIT_S:g} s: {why}") from None


if __name__ == "__main__":
    main()
