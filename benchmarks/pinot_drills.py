"""Failure drills on a real Pinot cluster whose broker has DIAL's plugin: which queries fail.

The feed is ours, so that it can be frozen or garbage; a table's configuration changes, segments
arrive, a server is killed, all under load.  Each drill runs on a table with DIAL's selector and on
one with Pinot's balanced, at the same time: what fails on both is Pinot's own.

Needs ``PINOT_JARS`` (:mod:`benchmarks.support.pinot.cluster`).  The last line is one JSON object:
by drill ``errors`` and ``errors_balanced`` of so many ``queries`` each, and what share of DIAL's
queries the first server got at its end (``first_share``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.support.pinot.cluster import (
    SERVER_HOSTS,
    SERVER_PORT,
    Broker,
    Cluster,
    table_config,
)
from benchmarks.support.pinot.load import Answer, ask
from dial_lab.processes import Children
from dial_pinot.parser import QueryLogParser

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "lb-adapters" / "pinot" / "plugin" / "target" / "dial-pinot.jar"
SELECTOR = "dial.pinot.DialInstanceSelector"
SERVERS = [f"Server_{host}_{SERVER_PORT + i}" for i, host in enumerate(SERVER_HOSTS)]
RATE_PER_S = 20.0
VALID_S = 3.0
UNEVEN = dict(zip(SERVERS, (0, 100, 100), strict=True))
EVEN_SHARE = 1.0 / len(SERVERS)


class Feed:
    """The controller's side: weights, garbage, silence, or nobody; and the query log."""

    def __init__(self) -> None:
        self.mode = "weights"
        self.weights: Mapping[str, int] = UNEVEN
        self._parser = QueryLogParser("views_dial_OFFLINE")
        self._parser.servers = dict(zip(SERVER_HOSTS, SERVERS, strict=True))
        self._met: list[str] = []
        self._lock = threading.Lock()

    @contextmanager
    def serving(self, port: int) -> Iterator[int]:
        """Listen on ``port``; 0 chooses one."""
        feed = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                feed.answer(self)

            def do_POST(self) -> None:
                feed.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One long poll, cut short."""
        if self.mode == "frozen":
            time.sleep(60.0)
        time.sleep(0.2)
        body = b"\x00garbage"
        if self.mode == "weights":
            document = {
                "format": 1,
                "version": 1,
                "at_s": time.time(),
                "valid_s": VALID_S,
                "weights": self.weights,
            }
            body = json.dumps(document).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def take(self, post: Mapping[str, list[str]]) -> None:
        """Lines of the query log."""
        batch = self._parser.read(post["lines"])
        with self._lock:
            self._met += [batch.names[i] for i in batch.backend]

    def first_share(self) -> float | None:
        """Of the queries of DIAL's table since the last call, the first server's share."""
        with self._lock:
            met, self._met = Counter(self._met), []
        total = sum(met.values())
        return round(met[SERVERS[0]] / total, 3) if total else None


class Drills:
    """A cluster, two tables, and what happens to them."""

    def __init__(self, cluster: Cluster, broker: Broker, feed: Feed, folder: Path) -> None:
        self.cluster = cluster
        self.broker = broker
        self.feed = feed
        self.folder = folder
        self.found: dict[str, dict[str, object]] = {}

    def run(self, name: str, event: Callable[[], None], *, seconds: float, after_s: float) -> None:
        """Load on both tables; the event after a second; what is so ``after_s`` later."""
        answers = asyncio.run(self._run(event, seconds, after_s))
        time.sleep(1.0)  # the log's last lines
        row: dict[str, object] = {"queries": len(answers["views_dial"])}
        for table, key in (("views_dial", "errors"), ("views", "errors_balanced")):
            wrong = [answer.said for answer in answers[table] if not answer.ok]
            row[key] = len(wrong)
            if wrong:
                row[f"{key}_said"] = wrong[0][:160]
        row["first_share"] = self.feed.first_share()
        self.found[name] = row
        print(f"{name}: {row}", file=sys.stderr)

    async def _run(
        self, event: Callable[[], None], seconds: float, after_s: float
    ) -> dict[str, list[Answer]]:
        async def happen() -> None:
            await asyncio.sleep(1.0)
            await asyncio.to_thread(event)
            await asyncio.sleep(after_s)
            self.feed.first_share()  # from here on counts

        dial, balanced, _ = await asyncio.gather(
            ask([self.broker.url], "views_dial", RATE_PER_S, seconds, 1),
            ask([self.broker.url], "views", RATE_PER_S, seconds, 2),
            happen(),
        )
        return {"views_dial": dial, "views": balanced}

    def set_feed(self, mode: str) -> None:
        """Change what the feed answers."""
        self.feed.mode = mode

    def change_config(self) -> None:
        """Make Pinot build the table's routing anew, and the other's."""
        for table, routing in (("views_dial", {"instanceSelectorType": SELECTOR}), ("views", {})):
            config = table_config(table, routing)
            config["metadata"] = {"customConfigs": {"dial.mode": "query", "touched": "1"}}
            self.cluster.put(f"/tables/{table}", config)

    def add_segments(self) -> None:
        """Upload those that were kept back."""
        for table in ("views_dial", "views"):
            self.cluster.upload(table, self.folder / "more")


def drill(drills: Drills) -> None:
    """All of them."""
    feed, cluster = drills.feed, drills.cluster
    first = f"server-{SERVER_HOSTS[0]}"
    drills.run("weights", lambda: None, seconds=5.0, after_s=1.0)
    drills.run("garbage", lambda: drills.set_feed("garbage"), seconds=9.0, after_s=VALID_S + 1.0)
    drills.run("weights again", lambda: drills.set_feed("weights"), seconds=12.0, after_s=7.0)
    drills.run("frozen", lambda: drills.set_feed("frozen"), seconds=9.0, after_s=VALID_S + 1.0)
    drills.run("thawed", lambda: drills.set_feed("weights"), seconds=18.0, after_s=13.0)
    drills.run("table configuration", drills.change_config, seconds=8.0, after_s=2.0)
    drills.run("segments arrive", drills.add_segments, seconds=10.0, after_s=2.0)

    def kill() -> None:
        cluster.roles[first].kill()
        cluster.roles[first].wait()

    feed.weights = dict.fromkeys(SERVERS, 100)
    drills.run("replica killed", kill, seconds=12.0, after_s=1.0)


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
    feed = Feed()
    try:
        with feed.serving(0) as port, Children(folder) as children:
            jvm = [
                f"-Ddial.weights=http://127.0.0.1:{port}/v1/weights",
                f"-Ddial.telemetry=http://127.0.0.1:{port}/v1/queries",
            ]
            broker = Broker("broker", settings={"pinot.broker.timeoutMs": "1500"}, jvm=jvm)
            cluster = Cluster(arguments.jars, folder, children, PLUGIN)
            cluster.start([broker], {})
            cluster.make_segments(folder / "segments", 16, 5_000)
            (folder / "more").mkdir()
            for number in range(12, 16):
                name = f"views_{number}.tar.gz"
                (folder / "segments" / name).rename(folder / "more" / name)
            cluster.add_table("views", {}, folder / "segments")
            cluster.add_table("views_dial", {"instanceSelectorType": SELECTOR}, folder / "segments")
            drills = Drills(cluster, broker, feed, folder)
            for _ in range(2):
                asyncio.run(ask([broker.url], "views", 40.0, 3.0, 9))
            drill(drills)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(drills.found, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()
