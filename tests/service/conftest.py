"""One controller's outside: published snapshots, an inbox, and a client on the application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from dial.clock import ManualClock
from dial.controller.snapshot import Publisher, Snapshot
from dial.intake.inbox import SampleInbox
from dial.intake.orders import OrderBook
from dial.metrics import Metrics
from dial.model import STARTER, load_model
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.token import Tokens
from dial.settings import AdapterSettings, Settings
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

TOKEN = "correct-horse-battery-staple"
OPERATOR = "the-operators-own-token"
NOW_S = 1_000_000.0


@pytest.fixture
def settings() -> Settings:
    return Settings(service="web", mode=Mode.ENFORCE, adapter=AdapterSettings(name="fake"))


@pytest.fixture
def before() -> Snapshot:
    """A controller before its first tick."""
    return Snapshot("web", "fake", Mode.ENFORCE, started_s=NOW_S, at_s=NOW_S)


@pytest.fixture
def after(before: Snapshot) -> Snapshot:
    """The same after tick 7: s1 beside a CPU neighbour, s2 without a request."""
    nothing = NoData("no request in this tick")
    windows = {
        "s1": RequestWindow(80, 1, 8.0, 40.0, 79, t_mean_ms=20.0, t_c_ms=nothing),
        "s2": RequestWindow(0, 0, 0.0, nothing, 0, t_mean_ms=nothing, t_c_ms=nothing),
    }
    observation = Observation(
        tick=7,
        now_s=NOW_S,
        interval_s=10.0,
        epoch="1",
        algorithm="roundrobin",
        meaning=WeightMeaning(WeightKind.REQUESTS, 1, 256, zero_drains=True),
        backends=tuple(
            BackendObservation(
                name, window, NoData("no sample"), ServerState(name, 100, 100, True, 1, 99, 1)
            )
            for name, window in windows.items()
        ),
        model_checksum="abc",
    )
    slow = Verdict(Cause.CPU, 0.3, 0.5, 50.0, 12.5, evidence=("T_x 40 ms, expected 12.5 ms",))
    none = NoData("idle")
    fine = Verdict(Cause.NONE, none, none, none, none)
    plan = Plan(
        tick=7,
        now_s=NOW_S,
        action=Action.SHIFT,
        reason="s1 lost half of its CPU",
        backends=(BackendPlan("s1", slow, 0.25, 33), BackendPlan("s2", fine, 0.75, 100)),
        changes=(("s1", 33),),
    )
    report = ApplyReport(7, NOW_S, wanted=(("s1", 33),), in_effect=(("s1", 33),))
    return replace(before, observation=observation, plan=plan, report=report)


@pytest.fixture
def publisher(before: Snapshot) -> Publisher:
    return Publisher(before)


@pytest.fixture
def inbox() -> SampleInbox:
    inbox = SampleInbox()
    inbox.set_backends(["s1", "s2"])
    return inbox


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S)


@pytest.fixture
def parts(
    settings: Settings,
    publisher: Publisher,
    inbox: SampleInbox,
    metrics: Metrics,
    clock: ManualClock,
) -> Parts:
    """With a token for agents, one for operators, and none for readers."""
    return Parts(
        settings,
        load_model(STARTER),
        publisher=publisher,
        inbox=inbox,
        orders=OrderBook(settings, clock),
        metrics=metrics,
        clock=clock,
        tokens=Tokens(agent=SecretStr(TOKEN), operator=SecretStr(OPERATOR)),
    )


@pytest.fixture
def make_app(parts: Parts) -> Callable[[str | None], FastAPI]:
    def make(token: str | None) -> FastAPI:
        return create_app(replace(parts, tokens=Tokens(agent=SecretStr(token) if token else None)))

    return make


@pytest.fixture
def app(parts: Parts) -> FastAPI:
    return create_app(parts)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://dial") as client:
        yield client
