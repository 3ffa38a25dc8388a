"""The parts of a controller's process, put together: what is configured, filled and shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI

from dial.adapter import Adapter
from dial.clock import Clock
from dial.controller.control import Controller
from dial.controller.policy import PolicySource
from dial.controller.snapshot import Publisher, Snapshot
from dial.handover import Handover
from dial.intake.inbox import SampleInbox
from dial.intake.orders import OrderBook
from dial.lease import Moment
from dial.metrics import Metrics
from dial.model import ModelDocument, load_model, model_path
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.token import Tokens
from dial.settings import Settings
from dial.telemetry import RequestWindows
from dial.tracing import Tracer, open_tracer


@dataclass(frozen=True, slots=True)
class Assembly:
    """Everything around a controller that lives as long as its process."""

    settings: Settings
    model: ModelDocument
    source: PolicySource
    adapter: Adapter
    clock: Clock
    tokens: Tokens
    tracer: Tracer
    windows: RequestWindows
    inbox: SampleInbox
    orders: OrderBook
    metrics: Metrics
    publisher: Publisher

    @classmethod
    def of(cls, settings: Settings, adapter: Adapter, clock: Clock) -> Assembly:
        """Put the parts together; does no I/O but to read files.

        Raises
        ------
        DialError
            If the model, a token or what an earlier controller left cannot be used.
        """
        model = load_model(model_path(settings.model))
        metrics = Metrics()
        metrics.watch(adapter)
        now_s = clock.now_s()
        return cls(
            settings,
            model,
            PolicySource.of(settings, model),
            adapter,
            clock,
            tokens=Tokens.load(settings.api),
            tracer=open_tracer(settings),
            windows=RequestWindows(settings.percentile, settings.guards.min_requests),
            inbox=SampleInbox(),
            orders=OrderBook(settings, clock),
            metrics=metrics,
            publisher=Publisher(
                Snapshot(settings.service, settings.adapter.name, settings.mode, now_s, now_s)
            ),
        )

    def controller(
        self, handover: Handover | None = None, now: Callable[[], Moment] = Moment.now
    ) -> Controller:
        """A controller over these parts; it knows nothing yet."""
        return Controller(
            self.settings,
            self.source,
            adapter=self.adapter,
            windows=self.windows,
            inbox=self.inbox,
            orders=self.orders,
            publisher=self.publisher,
            metrics=self.metrics,
            clock=self.clock,
            now=now,
            tracer=self.tracer,
            handover=handover,
        )

    def app(self) -> FastAPI:
        """The service that takes samples and orders, and shows what there is."""
        return create_app(
            Parts(
                self.settings,
                self.model,
                publisher=self.publisher,
                inbox=self.inbox,
                orders=self.orders,
                metrics=self.metrics,
                clock=self.clock,
                tokens=self.tokens,
            )
        )
