"""P95 of queries on a real Pinot cluster beside a hidden neighbour: DIAL, balanced, HYBRID.

ZooKeeper, controller, two brokers and three servers on this computer (``PINOT_JARS``, see
:mod:`benchmarks.support.pinot.cluster`).  Each server has an emulated machine of the lab; a
neighbour takes ``--rho-bg`` of the first one's CPU.  Two tables hold the same segments on all
servers: one with Pinot's balanced selector, one with DIAL's.  One broker selects adaptively
(HYBRID), the other does not.  Blocks of the policies alternate, with the same queries at the same
times in each round, so that ratios hold on a noisy computer; the first blocks warm up, and DIAL's
controller finds the neighbour by itself, from the query log and the agents.

Needs root and three gigabytes of memory.  The last line is one JSON object: figures by policy, and
``ratios`` with 95 % intervals over rounds (paired bootstrap), the paper's beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from benchmarks.support.pinot.cluster import SERVER_HOSTS, SERVER_PORT, Broker, Cluster
from benchmarks.support.pinot.load import Answer, ask
from dial.ports import free_port
from dial_lab.processes import Children
from dial_lab.resources.cpu import CPU
from dial_lab.topology import Machine, exclusive, host_cgroups, machines

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "lb-adapters" / "pinot" / "plugin" / "target" / "dial-pinot.jar"
DIAL = Path(sys.executable).with_name("dial")
SELECTOR = "dial.pinot.DialInstanceSelector"
BOOTSTRAP = 2_000
PERCENTILE = 95.0
PAPER_CUT = 0.405
"""Of P95 beside a neighbour on the CPU, six workers at 60 % load (Javadi and Gandhi, 5.4.2)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Whom to ask for what."""

    name: str
    broker: Broker
    table: str


def controller_config(folder: Path, cluster: Cluster, broker: Broker, ports: Sequence[int]) -> Path:
    """DIAL's own configuration."""
    api, log = ports
    file = folder / "dial.toml"
    file.write_text(f"""\
service = "views_dial_OFFLINE"
mode = "enforce"
percentile = {PERCENTILE}

[adapter]
name = "pinot"
[adapter.options]
pinot = "{cluster.controller}"
brokers = ["{broker.url}"]
log = "http://127.0.0.1:{log}"

[guards]
min_requests = 10

[api]
port = {api}
token_file = "{folder / "token"}"

[record]
path = "{folder / "recording.jsonl"}"
""")
    return file


def start_dial(
    children: Children, folder: Path, config: Path, api: int, built: Sequence[Machine]
) -> None:
    """The controller, and an agent beside each server."""
    children.start("dial", [str(DIAL), "controller", "--config", str(config)])
    for number, (machine, host) in enumerate(zip(built, SERVER_HOSTS, strict=True)):
        children.start(
            f"agent-{host}",
            [
                *(str(DIAL), "agent", "--controller", f"http://127.0.0.1:{api}"),
                *("--backend", f"Server_{host}_{SERVER_PORT + number}"),
                *("--token-file", str(folder / "token"), "--cgroup", machine.fg),
                *("--cpu-capacity-cores", str(machine.capacity_cores)),
            ],
            join=machine.tenant_files(),
        )


def state(api: int) -> dict[str, object]:
    """What DIAL holds now, in short."""
    now = httpx.get(f"http://127.0.0.1:{api}/v1/state", timeout=5.0).json()
    return {
        b["name"]: [b["weight"], b.get("cause"), b.get("rho_bg"), b.get("t_x_ms")]
        for b in now["backends"]
    }


def p95_ms(answers: Sequence[Answer]) -> float:
    """Of the queries that were answered, and of those that were not, which were no faster."""
    return float(np.percentile([answer.latency_ms for answer in answers], PERCENTILE))


def ratio(
    ours: Sequence[Sequence[Answer]], theirs: Sequence[Sequence[Answer]]
) -> dict[str, object]:
    """Ratio of the P95 of all rounds, with the interval of a bootstrap over rounds."""
    choose = np.random.default_rng(7)
    pairs = list(zip(ours, theirs, strict=True))

    def of(rounds: Sequence[int]) -> float:
        one = [answer for i in rounds for answer in pairs[i][0]]
        other = [answer for i in rounds for answer in pairs[i][1]]
        return p95_ms(one) / p95_ms(other)

    drawn = [of(choose.integers(len(pairs), size=len(pairs)).tolist()) for _ in range(BOOTSTRAP)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {"p95": round(of(range(len(pairs))), 3), "ci95": [round(low, 3), round(high, 3)]}


def summary(blocks: Mapping[str, Sequence[Sequence[Answer]]]) -> dict[str, object]:
    """Figures by policy, and ratios against DIAL."""
    found: dict[str, object] = {}
    for name, rounds in blocks.items():
        answers = [answer for one in rounds for answer in one]
        wrong = [answer.said for answer in answers if not answer.ok]
        times = [answer.latency_ms for answer in answers]
        found[name] = {
            "queries": len(answers),
            "errors": len(wrong),
            "said": sorted(set(wrong))[:3],
            **{f"p{p}_ms": round(float(np.percentile(times, p)), 1) for p in (50, 90, 95, 99)},
        }
    return found


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Bring all up, and alternate."""
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_urlsafe(32))
    api, log = free_port(), free_port()
    dial = [
        f"-Ddial.weights=http://127.0.0.1:{api}/v1/weights",
        f"-Ddial.telemetry=http://127.0.0.1:{log}/v1/queries",
        f"-Ddial.token.file={token}",
    ]
    plain = Broker("broker", jvm=dial)
    hybrid = Broker(
        "broker-hybrid",
        settings={
            "pinot.broker.adaptive.server.selector.type": "HYBRID",
            "pinot.broker.adaptive.server.selector.enable.stats.collection": "true",
        },
    )
    policies = [
        Policy("dial", plain, "views_dial"),
        Policy("balanced", plain, "views"),
        Policy("hybrid", hybrid, "views"),
    ]
    result: dict[str, object] = {"paper": {"dial/baseline": {"p95": round(1.0 - PAPER_CUT, 3)}}}
    with ExitStack() as stack:
        stack.enter_context(exclusive())
        cgroups = host_cgroups()
        cores = sorted(os.sched_getaffinity(0))
        names = [f"pinot{i}" for i in range(len(SERVER_HOSTS))]
        built = stack.enter_context(machines(cgroups, names, cores))
        for machine in built:
            cgroups.lift_quota(machine.group)  # to start and warm up; set again below
        children = stack.enter_context(Children(folder))
        joins = {h: m.tenant_files() for h, m in zip(SERVER_HOSTS, built, strict=True)}
        cluster = Cluster(arguments.jars, folder, children, PLUGIN)
        cluster.start([plain, hybrid], joins)
        cluster.make_segments(folder / "segments", arguments.segments, arguments.rows)
        cluster.add_table("views", {}, folder / "segments")
        cluster.add_table("views_dial", {"instanceSelectorType": SELECTOR}, folder / "segments")

        def block(policy: Policy, rate_per_s: float, seconds: float, seed: int) -> list[Answer]:
            load = ask([policy.broker.url], policy.table, rate_per_s, seconds, seed)
            answers = asyncio.run(load)
            children.check()
            return answers

        for turn in range(arguments.warm_up):
            for policy in policies:
                block(policy, 1.5 * arguments.rate, 5.0, 1_000 + turn)
        for machine in built:
            period_us = 10_000
            quota_us = machine.capacity_cores * period_us
            cgroups.set_quota(machine.group, quota_us, period_us)
        config = controller_config(folder, cluster, plain, (api, log))
        start_dial(children, folder, config, api, built)
        cluster.await_true("dial", lambda: bool(state(api)))

        def alternate(rounds: int, seed: int) -> dict[str, list[list[Answer]]]:
            blocks: dict[str, list[list[Answer]]] = {policy.name: [] for policy in policies}
            for turn in range(rounds):
                order = policies[turn % 3 :] + policies[: turn % 3]
                for policy in order:
                    answers = block(policy, arguments.rate, arguments.block_s, seed + turn)
                    blocks[policy.name].append(answers)
                    print(
                        f"{policy.name:9} P95 {p95_ms(answers):7.1f} ms  {state(api)}",
                        file=sys.stderr,
                    )
            return blocks

        block(policies[0], arguments.rate, arguments.learn_s, 1)  # DIAL's quiet past
        result["quiet"] = summary(alternate(arguments.quiet_rounds, 100))
        CPU.start_neighbour(children, built[0], arguments.rho_bg, 3_600.0)
        found = block(policies[0], arguments.rate, arguments.block_s, 2)
        print(f"neighbour: P95 {p95_ms(found):.1f} ms  {state(api)}", file=sys.stderr)
        contended = alternate(arguments.rounds, 200)
        result["contended"] = summary(contended)
        result["ratios"] = {
            f"dial/{name}": ratio(contended["dial"], contended[name])
            for name in ("balanced", "hybrid")
        }
        result["weights"] = state(api)
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON, last on stdout")
    parser.add_argument("--jars", default=os.environ.get("PINOT_JARS", ""), help="classpath")
    parser.add_argument("--rate", type=float, default=40.0, help="queries a second")
    parser.add_argument("--rho-bg", type=float, default=0.7, help="what the neighbour takes")
    parser.add_argument("--segments", type=int, default=12)
    parser.add_argument("--rows", type=int, default=10_000, help="of each segment")
    parser.add_argument("--warm-up", type=int, default=4, help="rounds without a quota")
    parser.add_argument("--learn-s", type=float, default=20.0, help="of quiet for DIAL")
    parser.add_argument("--quiet-rounds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12, help="beside the neighbour")
    parser.add_argument("--block-s", type=float, default=10.0)
    parser.add_argument("--keep", action="store_true", help="keep the folder of logs")
    arguments = parser.parse_args()
    if not arguments.jars:
        reason = "PINOT_JARS is not set: the classpath of Pinot 1.5, such as '/opt/pinot/lib/*'"
        print(json.dumps({"skipped": reason}))
        return
    folder = Path(tempfile.mkdtemp(prefix="dial-pinot-"))
    try:
        found = measure(arguments, folder)
    finally:
        if arguments.keep:
            print(f"logs: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()
