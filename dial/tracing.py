"""Traces of decisions, for those who follow requests and decisions in one place.

Off unless ``tracing.endpoint`` is set; then OpenTelemetry's packages are needed (the extra
``tracing``), and imported only then.  One trace a tick::

    dial.tick        mode; an error where there was trouble
      dial.read      the load balancer
      dial.decide    tick, action and reason; an event ``verdict`` with its evidence for each
                     backend that is not well
      dial.apply     weights wanted and in effect, where there is something to write

Nothing is sampled out: one trace a second is little, and the one that matters is rare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from dial import __version__
from dial.errors import SettingError
from dial.types import ApplyReport, Measured, NoData, Plan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span as OtelSpan

    from dial.settings import Settings

EXPORT_S = 2.0
"""How long one attempt to send may take: the next traces wait for it, the control loop does not."""

Attribute = str | int | float | bool | Sequence[str]


class Span(Protocol):
    """A piece of work with a beginning and an end."""

    def set(self, name: str, value: Attribute) -> None:
        """Say something of it."""

    def event(self, name: str, attributes: dict[str, Attribute]) -> None:
        """Say what happened in it, now."""

    def fail(self, why: str) -> None:
        """Say that it did not succeed."""


class Tracer(Protocol):
    """Makes spans; one that begins within another is its child."""

    def span(self, name: str) -> AbstractContextManager[Span]:
        """Begin one; it ends with the context."""

    def close(self) -> None:
        """Send what is left, for :data:`EXPORT_S` at most."""


class _NoSpan:
    def set(self, name: str, value: Attribute) -> None:
        pass

    def event(self, name: str, attributes: dict[str, Attribute]) -> None:
        pass

    def fail(self, why: str) -> None:
        pass


class NoTraces:
    """Makes nothing of it, at the cost of a few calls a tick."""

    _span = _NoSpan()

    @contextmanager
    def span(self, name: str) -> Iterator[Span]:  # noqa: ARG002 - the protocol's
        """Nothing begins."""
        yield self._span

    def close(self) -> None:
        """Nothing is left."""


def open_tracer(settings: Settings) -> Tracer:
    """What ``settings.tracing`` asks for.

    Raises
    ------
    SettingError
        If traces are asked for and OpenTelemetry is not installed.
    """
    if settings.tracing.endpoint is None:
        return NoTraces()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise SettingError(
            f"tracing.endpoint = {settings.tracing.endpoint!r}: OpenTelemetry is not installed "
            f"({error.name}): pip install 'dial-lb[tracing]'"
        ) from error
    exporter = OTLPSpanExporter(endpoint=settings.tracing.endpoint, timeout=EXPORT_S)
    return OpenTelemetryTracer(settings.service, BatchSpanProcessor(exporter))


class OpenTelemetryTracer:
    """Hands spans to OpenTelemetry's SDK.

    A provider of its own: nothing global is set, and the environment's ``OTEL_*`` variables
    keep their meaning for resource attributes and headers.
    """

    def __init__(self, service: str, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see open_tracer
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        named = {"service.name": "dial", "service.version": __version__, "dial.service": service}
        # Not at exit: the controller ends it itself, and within a bound.
        self._provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("dial", __version__)

    @contextmanager
    def span(self, name: str) -> Iterator[Span]:
        """Begin one; an exception that leaves it is recorded."""
        with self._tracer.start_as_current_span(name) as span:
            yield _OtelSpan(span)

    def close(self) -> None:
        """Send what is left and stop."""
        self._provider.shutdown()


class _OtelSpan:
    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    def set(self, name: str, value: Attribute) -> None:
        self._span.set_attribute(name, value)

    def event(self, name: str, attributes: dict[str, Attribute]) -> None:
        self._span.add_event(name, attributes)

    def fail(self, why: str) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - see open_tracer

        self._span.set_status(StatusCode.ERROR, why)


# ---------------------------------------------------------------- what is said of a decision


def describe_plan(span: Span, plan: Plan) -> None:
    """Say what was decided, and what is held of each backend that is not well."""
    span.set("dial.action", plan.action.value)
    span.set("dial.reason", plan.reason)
    for backend in plan.suspected:
        verdict = backend.verdict
        attributes: dict[str, Attribute] = {
            "dial.backend": backend.name,
            "dial.cause": verdict.cause.value,
            "dial.share": backend.share,
            "dial.weight": backend.weight,
            "dial.evidence": verdict.evidence,
        }
        for name in ("rho_fg", "rho_bg", "expected_t_x_ms"):
            value: Measured = getattr(verdict, name)
            if not isinstance(value, NoData):
                attributes[f"dial.{name}"] = value
        span.event("verdict", attributes)


def describe_write(span: Span, report: ApplyReport) -> None:
    """Say which weights were asked for, which are in effect, and what was refused."""
    span.set("dial.wanted", [f"{name}={weight}" for name, weight in report.wanted])
    span.set("dial.in_effect", [f"{name}={weight}" for name, weight in report.in_effect])
    if not report.ok:
        span.fail("; ".join(f"{name}: {why}" for name, why in report.failures) or "not in effect")
