"""Failure drills on a real Pinot cluster whose broker has DIAL's plugin: which queries fail.

The feed is ours, so that it can be down, frozen or garbage; a table's configuration changes,
segments arrive, a server is added, another is killed, all under load.  Each drill runs on a table
with DIAL's selector and on one with Pinot's balanced, at the same time: what fails on both is
Pinot's own.

Needs ``PINOT_JARS`` (:mod:`benchmarks.support.pinot.cluster`), 3.5 GB of memory and four minutes.
The last line is one JSON object: by drill ``errors`` and ``errors_balanced`` of so many ``queries``
each, and which part of what DIAL's queries asked of servers the first one got at its end
(``first_share``), and the added one (``added_share``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.support.pinot.cluster import (
    SERVER_HOSTS,
    SERVER_PORT,
    Broker,
    Cluster,
    table_config,
)
from benchmarks.support.pinot.feed import Feed
from benchmarks.support.pinot.load import Answer, ask
from dial.ports import free_port
from dial_lab.processes import Children

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "lb-adapters" / "pinot" / "plugin" / "target" / "dial-pinot.jar"
SELECTOR = "dial.pinot.DialInstanceSelector"
ADDED_HOST = "127.0.0.5"
HOSTS = (*SERVER_HOSTS, ADDED_HOST)
INSTANCES = {host: f"Server_{host}_{SERVER_PORT + i}" for i, host in enumerate(HOSTS)}
SERVERS = [INSTANCES[host] for host in SERVER_HOSTS]
ROUTING: dict[str, dict[str, object]] = {
    "views_dial": {"instanceSelectorType": SELECTOR},
    "views": {},
}
RATE_PER_S = 20.0
VALID_S = 3.0
UNEVEN = dict(zip(SERVERS, (0, 100, 100), strict=True))


class Drills:
    """A cluster, two tables, and what happens to them."""

    def __init__(
        self, cluster: Cluster, broker: Broker, alone: Broker, feed: Feed, folder: Path
    ) -> None:
        self.cluster = cluster
        self.broker = broker
        self.alone = alone
        self.feed = feed
        self.folder = folder
        self.found: dict[str, dict[str, object]] = {}

    def run(
        self,
        name: str,
        event: Callable[[], None] = lambda: None,
        *,
        seconds: float,
        after_s: float,
        then: Callable[[], None] = lambda: None,
        broker: Broker | None = None,
    ) -> None:
        """Load on both tables; the event after a second; what is so ``after_s`` and ``then``."""
        answers = asyncio.run(self._run(broker or self.broker, event, seconds, after_s, then))
        time.sleep(1.0)  # the log's last lines
        row: dict[str, object] = {"queries": len(answers["views_dial"])}
        for table, key in (("views_dial", "errors"), ("views", "errors_balanced")):
            wrong = [answer.said for answer in answers[table] if not answer.ok]
            row[key] = len(wrong)
            if wrong:
                row[f"{key}_said"] = wrong[0][:160]
        shares = self.feed.shares([SERVERS[0], INSTANCES[ADDED_HOST]])
        row |= dict(zip(("first_share", "added_share"), shares, strict=False))
        self.found[name] = row
        print(f"{name}: {row}", file=sys.stderr)

    async def _run(
        self,
        broker: Broker,
        event: Callable[[], None],
        seconds: float,
        after_s: float,
        then: Callable[[], None],
    ) -> dict[str, list[Answer]]:
        async def happen() -> None:
            await asyncio.sleep(1.0)
            await asyncio.to_thread(event)
            await asyncio.sleep(after_s)
            then()
            self.feed.shares([])  # from here on counts

        dial, balanced, _ = await asyncio.gather(
            ask([broker.url], "views_dial", RATE_PER_S, seconds, 1),
            ask([broker.url], "views", RATE_PER_S, seconds, 2),
            happen(),
        )
        return {"views_dial": dial, "views": balanced}

    def controller_dies(self) -> None:
        """Nobody listens for the log either."""
        self.feed.hang_up(self.feed.weights_port, self.feed.log_port)

    def set_feed(self, mode: str) -> None:
        """Change what the feed answers."""
        self.feed.mode = mode

    def change_config(self) -> None:
        """Make Pinot build the table's routing anew, and the other's."""
        for table, routing in ROUTING.items():
            config = table_config(table, routing)
            config["metadata"] = {"customConfigs": {"dial.mode": "query", "touched": "1"}}
            self.cluster.put(f"/tables/{table}", config)

    def add_segments(self) -> None:
        """Upload those that were kept back."""
        for table in ROUTING:
            self.cluster.upload(table, self.folder / "more")

    def start_server(self) -> None:
        """One more, with nothing to serve yet."""
        self.cluster.start_server(ADDED_HOST, len(SERVER_HOSTS))
        self.cluster.await_role(f"server-{ADDED_HOST}")

    def rebalance(self) -> None:
        """A quarter of all replicas move to the added one."""
        for table in ROUTING:
            self.cluster.rebalance(table, INSTANCES[ADDED_HOST])

    def kill_server(self) -> None:
        """The first one, which has as much to do as any."""
        role = self.cluster.roles[f"server-{SERVER_HOSTS[0]}"]
        role.kill()
        role.wait()


def drill(drills: Drills) -> None:
    """All of them."""
    feed = drills.feed
    expired_s = VALID_S + 1.0
    drills.run("weights", seconds=5.0, after_s=1.0)
    drills.run("unreachable from the start", broker=drills.alone, seconds=5.0, after_s=1.0)
    drills.run("garbage", lambda: drills.set_feed("garbage"), seconds=9.0, after_s=expired_s)
    drills.run("weights again", lambda: drills.set_feed("weights"), seconds=12.0, after_s=7.0)
    drills.run("frozen", lambda: drills.set_feed("frozen"), seconds=9.0, after_s=expired_s)
    drills.run("thawed", lambda: drills.set_feed("weights"), seconds=18.0, after_s=13.0)
    drills.run(
        "controller down",
        drills.controller_dies,
        seconds=10.0,
        after_s=expired_s,
        then=lambda: feed.listen(feed.log_port),
    )
    drills.run("up again", lambda: feed.listen(feed.weights_port), seconds=14.0, after_s=9.0)
    drills.run("table configuration", drills.change_config, seconds=8.0, after_s=2.0)
    drills.run("segments arrive", drills.add_segments, seconds=10.0, after_s=2.0)
    drills.start_server()  # not in an event: a child ends with the thread that began it
    drills.run("server added", drills.rebalance, seconds=30.0, after_s=2.0)
    feed.weights = dict.fromkeys(INSTANCES.values(), 100)
    drills.run("replica killed", drills.kill_server, seconds=12.0, after_s=1.0)


def main() -> None:
    """Run the drills and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON, last on stdout")
    parser.add_argument("--jars", default=os.environ.get("PINOT_JARS", ""), help="classpath")
    arguments = parser.parse_args()
    if not arguments.jars:
        reason = "PINOT_JARS is not set: the classpath of Pinot 1.5, such as '/opt/pinot/lib/*'"
        print(json.dumps({"skipped": reason}))
        return
    folder = Path(tempfile.mkdtemp(prefix="dial-pinot-"))
    feed = Feed("views_dial_OFFLINE", INSTANCES, UNEVEN, VALID_S)
    try:
        with feed.serving(), Children(folder) as children:
            timeout = {"pinot.broker.timeoutMs": "1500"}
            broker = Broker("broker", settings=timeout, jvm=feed.jvm)
            nobody = f"-Ddial.weights=http://127.0.0.1:{free_port()}/v1/weights"
            alone = Broker("broker-alone", settings=timeout, jvm=[nobody, feed.jvm[1]])
            cluster = Cluster(arguments.jars, folder, children, PLUGIN)
            cluster.start([broker, alone], {})
            cluster.make_segments(folder / "segments", 16, 5_000)
            (folder / "more").mkdir()
            for number in range(12, 16):
                name = f"views_{number}.tar.gz"
                (folder / "segments" / name).rename(folder / "more" / name)
            for table, routing in ROUTING.items():
                cluster.add_table(table, routing, folder / "segments")
            drills = Drills(cluster, broker, alone, feed, folder)
            for _ in range(2):
                asyncio.run(ask([broker.url, alone.url], "views", 40.0, 3.0, 9))
            drill(drills)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(drills.found, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()
