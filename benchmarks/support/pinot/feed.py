"""The controller's side, as the broker's plugin meets it: weights, garbage, silence or nobody."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dial.ports import free_port
from dial_pinot.parser import QueryLogParser


class Feed:
    """Answers plugins as it is told, and counts which servers queries met.

    Parameters
    ----------
    table : with its type, whose queries count.
    servers : by their names in the query log.
    weights : to begin with.
    valid_s : how long they hold.
    """

    def __init__(
        self, table: str, servers: Mapping[str, str], weights: Mapping[str, int], valid_s: float
    ) -> None:
        self.mode = "weights"
        self.weights = weights
        self.weights_port, self.log_port = free_port(), free_port()
        self._valid_s = valid_s
        self._parser = QueryLogParser(table)
        self._parser.servers = servers
        self._met: list[str] = []
        self._lock = threading.Lock()
        self._listening: dict[int, ThreadingHTTPServer] = {}

    @property
    def jvm(self) -> list[str]:
        """What the broker's plugin has to be told."""
        return [
            f"-Ddial.weights=http://127.0.0.1:{self.weights_port}/v1/weights",
            f"-Ddial.telemetry=http://127.0.0.1:{self.log_port}/v1/queries",
        ]

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Listen on both ports until the end."""
        self.listen(self.weights_port, self.log_port)
        try:
            yield
        finally:
            self.hang_up(*self._listening)

    def listen(self, *ports: int) -> None:
        """Answer on these ports."""
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

        for port in ports:
            server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
            server.daemon_threads = True
            self._listening[port] = server
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def hang_up(self, *ports: int) -> None:
        """Refuse connections to these ports, as where no process is."""
        for port in ports:
            server = self._listening.pop(port)
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
                "valid_s": self._valid_s,
                "weights": self.weights,
            }
            body = json.dumps(document).encode()
        with suppress(ConnectionError):  # it had waited long enough
            request.send_response(200)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)

    def take(self, post: Mapping[str, list[str]]) -> None:
        """Lines of the query log."""
        batch = self._parser.read(post["lines"])
        with self._lock:
            self._met += [batch.names[i] for i in batch.backend]

    def shares(self, servers: Sequence[str]) -> list[float]:
        """Of what was asked of servers since the last call, the part of each of these."""
        with self._lock:
            met, self._met = Counter(self._met), []
        total = sum(met.values())
        return [round(met[server] / total, 3) for server in servers] if total else []
