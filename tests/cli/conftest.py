"""A controller's service on a real socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from dial.cli.app import run
from dial.clock import ManualClock
from dial.controller.baseline import Baselines
from dial.controller.snapshot import Publisher, Snapshot
from dial.intake.inbox import SampleInbox
from dial.intake.orders import OrderBook
from dial.metrics import Metrics
from dial.model import STARTER, load_model
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.server import serve
from dial.service.token import Tokens
from dial.settings import AdapterSettings, ApiSettings, Settings
from dial.types import (
    Action,
    ApplyReport,
    BackendObservation,
    BackendPlan,
    Cause,
    Mode,
    NoData,
    Observation,
    Plan,
    RequestWindow,
    ServerState,
    Verdict,
    WeightKind,
    WeightMeaning,
)

NOW_S = 1_000_000.0

Dial = Callable[..., tuple[int, str, str]]


@pytest.fixture
def dial(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Dial:
    """Run one command line: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "200")  # Rich would fold tables to 80
    monkeypatch.delenv("DIAL_URL", raising=False)

    def invoke(*argv: str) -> tuple[int, str, str]:
        code = run(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


@pytest.fixture
def snapshot() -> Snapshot:
    """s1 beside a CPU neighbour (its write failed), s[red]2 idle."""
    idle = NoData("no request in this tick")
    busy = RequestWindow(80, 1, 8.0, 40.0, 79, 20.0, idle)
    silent = RequestWindow(0, 0, 0.0, idle, 0, idle, idle)
    observation = Observation(
        tick=7,
        now_s=NOW_S,
        interval_s=10.0,
        epoch="1",
        algorithm="roundrobin",
        meaning=WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True),
        backends=tuple(
            BackendObservation(
                name, window, NoData("not sent"), ServerState(name, 100, 90, True, 1, 99, 1)
            )
            for name, window in (("s1", busy), ("s[red]2", silent))
        ),
        model_checksum="abc",
    )
    slow = Verdict(Cause.CPU, 0.3, 0.5, 50.0, 12.5, evidence=("run-queue wait is up",))
    none = NoData("idle")
    fine = Verdict(Cause.NONE, none, none, none, none)
    plan = Plan(
        tick=7,
        now_s=NOW_S,
        action=Action.SHIFT,
        reason="s1 lost half of its CPU",
        backends=(BackendPlan("s1", slow, 0.25, 33), BackendPlan("s[red]2", fine, 0.75, 100)),
        changes=(("s1", 33),),
    )
    report = ApplyReport(7, NOW_S, (("s1", 33),), (("s1", 100),), (("s1", "permission denied"),))
    baselines = Baselines(
        learnt=np.array([31, 2]),
        ratio=np.array([1.84, np.nan]),
        doubtful=np.array([True, False]),
        interval_s=10.0,
    )
    return Snapshot(
        "web", "fake", Mode.ENFORCE, NOW_S, NOW_S, observation, plan, report, baselines=baselines
    )


@pytest.fixture
def publisher() -> Publisher:
    return Publisher(Snapshot("web", "fake", Mode.SHADOW, started_s=NOW_S, at_s=NOW_S))


@pytest.fixture
def url(publisher: Publisher) -> Iterator[str]:
    settings = Settings(service="web", adapter=AdapterSettings(name="fake"))
    clock = ManualClock(NOW_S)
    app = create_app(
        Parts(
            settings,
            load_model(STARTER),
            publisher=publisher,
            inbox=SampleInbox(),
            orders=OrderBook(settings, clock),
            metrics=Metrics(),
            clock=clock,
            tokens=Tokens(),
        )
    )
    listening = threading.Event()
    stopped = asyncio.Event()
    loop: asyncio.AbstractEventLoop
    port = 0

    async def main() -> None:
        nonlocal loop, port
        loop = asyncio.get_running_loop()
        async with serve(app, ApiSettings(port=0)) as port:
            listening.set()
            await stopped.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert listening.wait(10)
    yield f"http://127.0.0.1:{port}"
    loop.call_soon_threadsafe(stopped.set)
    thread.join(10)
    assert not thread.is_alive()


class Answering:
    """Answers every request with the same, and keeps what it was authorised with."""

    def __init__(self) -> None:
        self.authorizations: list[str | None] = []
        self._servers: list[HTTPServer] = []

    def __call__(self, status: int, body: bytes) -> str:
        """Serve that; returns the address."""
        authorizations = self.authorizations

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                authorizations.append(self.headers["Authorization"])
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self._servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture
def answering() -> Iterator[Answering]:
    server = Answering()
    yield server
    server.close()
