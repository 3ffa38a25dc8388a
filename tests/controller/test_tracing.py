"""Traces of decisions, kept in memory, and what becomes of a controller without a collector."""

from __future__ import annotations

import socket
import sys
import time

import pytest

from dial.errors import SettingError
from dial.settings import Settings
from dial.tracing import EXPORT_S, NoTraces, OpenTelemetryTracer, open_tracer
from dial.types import Mode

from .world import World

pytest.importorskip("opentelemetry.sdk", reason="the extra tracing is not installed")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter):
    return OpenTelemetryTracer("app", SimpleSpanProcessor(exporter))


def traces(exporter) -> list[dict[str, ReadableSpan]]:
    """Spans by name, of each tick in order; all of them in one trace, below the tick's."""
    spans = exporter.get_finished_spans()
    roots = [span for span in spans if span.parent is None]
    assert {root.name for root in roots} <= {"dial.tick", "dial.apply"}
    found = []
    for root in roots:
        same = [s for s in spans if s.context.trace_id == root.context.trace_id]
        assert all(s is root or s.parent.span_id == root.context.span_id for s in same)
        found.append({span.name: span for span in same})
    return found


async def test_a_decision_is_a_trace_with_its_evidence_and_what_was_written(
    service, tracer, exporter
):
    world = World(service, tracer=tracer)
    await world.controller.begin()
    await world.pass_ticks(10)
    quiet = traces(exporter)
    assert len(quiet) == 10
    for tick in quiet:
        assert tick.keys() == {"dial.tick", "dial.read", "dial.decide"}
        assert tick["dial.tick"].attributes == {"dial.mode": "enforce"}
        assert tick["dial.decide"].attributes["dial.action"] == "hold"
        assert tick["dial.decide"].events == ()
    resource = quiet[0]["dial.tick"].resource.attributes
    assert (resource["service.name"], resource["dial.service"]) == ("dial", "app")

    exporter.clear()
    service.rho_bg["s1"] = 0.6
    await world.pass_ticks(4)
    moved = next(tick for tick in traces(exporter) if "dial.apply" in tick)
    decided, applied = moved["dial.decide"], moved["dial.apply"]
    assert decided.attributes["dial.action"] == "shift"
    assert decided.attributes["dial.reason"]
    (verdict,) = [event for event in decided.events if event.attributes["dial.backend"] == "s1"]
    assert verdict.name == "verdict"
    assert verdict.attributes["dial.cause"] in ("cpu", "unknown")
    assert verdict.attributes["dial.evidence"]
    assert applied.attributes["dial.wanted"] == applied.attributes["dial.in_effect"]
    assert any(pair.startswith("s1=") for pair in applied.attributes["dial.wanted"])
    assert applied.status.is_unset
    await world.controller.end()


async def test_trouble_is_the_ticks_error(service, tracer, exporter):
    world = World(service, tracer=tracer)
    await world.controller.begin()
    world.balancer.reachable = False
    await world.pass_ticks(1)
    (tick,) = traces(exporter)
    assert tick.keys() == {"dial.tick", "dial.read"}
    assert not tick["dial.tick"].status.is_ok
    assert "nobody answers" in tick["dial.tick"].status.description
    (raised,) = tick["dial.read"].events
    assert raised.name == "exception"


async def test_the_plans_are_the_same_with_and_without_traces(make_service, tracer):
    weights = []
    for used in (None, tracer):
        service = make_service()
        service.run(20)
        world = World(service, tracer=used, mode=Mode.ENFORCE)
        await world.shift()
        weights.append(service.weights)
    assert weights[0] == weights[1]


def settings(endpoint: str | None) -> Settings:
    return Settings(service="app", adapter={"name": "memory"}, tracing={"endpoint": endpoint})


def test_traces_are_off_by_default_and_then_nothing_is_imported():
    default = Settings(service="app", adapter={"name": "memory"})
    assert isinstance(open_tracer(default), NoTraces)


def test_a_package_that_is_missing_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(SettingError, match=r"pip install 'dial-lb\[tracing\]'"):
        open_tracer(settings("http://127.0.0.1:4318/v1/traces"))


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ValueError, match="endpoint"):
        settings("127.0.0.1:4318")


def test_a_collector_that_never_answers_delays_the_end_by_its_bound_alone():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracer = open_tracer(settings(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"))
        with tracer.span("dial.tick"):
            pass
        began_s = time.monotonic()
        tracer.close()
        # One attempt of EXPORT_S; tenfold is no limit on speed, but on hanging.
        assert time.monotonic() - began_s < 10 * EXPORT_S
