"""Endpoints that show something."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, TypeAdapter

from dial.controller.snapshot import HISTORY
from dial.controller.timeline import MAX_EVENTS, Event
from dial.errors import IntakeError
from dial.intake.orders import unknown_backend
from dial.service.parts import Parts, in_pieces, json_of, list_json
from dial.service.stream import EventStream, Streams
from dial.service.views import (
    BackendState,
    BackendVerdict,
    History,
    State,
    history_json,
    rows_of,
    verdicts_of,
)
from dial.types import Mode, Observation, Override, Plan

Last = Annotated[
    int,
    Query(
        ge=1,
        le=HISTORY,
        description="How many of the newest; of more than 333 backends fewer are kept.",
    ),
]

_BACKENDS = TypeAdapter(tuple[BackendState, ...])
_BACKEND = TypeAdapter(BackendState)
_VERDICTS = TypeAdapter(list[BackendVerdict])
_OBSERVATION = TypeAdapter(Observation)
_PLAN = TypeAdapter(Plan)
_EVENTS = TypeAdapter(tuple[Event, ...])


class ModeState(BaseModel):
    """What the controller does with its plans, and what operators have ordered."""

    mode: Mode
    frozen_since_s: float | None
    overrides: list[Override]
    outlives_restart: bool
    """Whether these orders are kept for the controller that is started next (lease.path)."""


class ModelState(BaseModel):
    """The model in use."""

    name: str
    checksum: str
    format: Literal[1]
    card: dict[str, str]
    """What it is, how it was made, what it cannot do."""
    features: list[str]


def mode_of(parts: Parts) -> ModeState:
    """The mode and the orders, as they hold at this moment."""
    orders = parts.orders.now()
    return ModeState(
        mode=Mode.FROZEN if orders.frozen else parts.settings.mode,
        frozen_since_s=orders.frozen_since_s,
        overrides=list(orders.overrides),
        outlives_restart=parts.orders.outlives_restart,
    )


def reading(parts: Parts) -> APIRouter:
    """The endpoints, all of which change nothing."""
    router = APIRouter(prefix="/v1", dependencies=[Depends(parts.reader)])
    publisher, doc = parts.publisher, parts.read_security
    streams = Streams(parts.settings.api.max_streams, parts.metrics)

    @router.get("/state", response_model=State, openapi_extra=doc)
    async def get_state() -> Response:
        """The controller now, a row per backend."""
        return Response(parts.state_json(), media_type="application/json")

    @router.get("/backends", response_model=list[BackendState], openapi_extra=doc)
    async def get_backends() -> Response:
        """The backends: what is seen of each, held of it, and given to it."""
        return json_of(_BACKENDS, rows_of(publisher.current))

    @router.get("/backends/{backend}", response_model=BackendState, openapi_extra=doc)
    async def get_backend(backend: Annotated[str, Path(max_length=256)]) -> Response:
        """One backend."""
        rows = rows_of(publisher.current)
        found = next((row for row in rows if row.name == backend), None)
        if found is None:
            raise unknown_backend(backend, [row.name for row in rows])
        return json_of(_BACKEND, found)

    @router.get("/observations", response_model=list[Observation], openapi_extra=doc)
    async def get_observations(last: Last = 1) -> Response:
        """The observations of the last ticks, oldest first: all that plans were made from."""
        kept = (s.observation for s in publisher.history(last) if s.observation is not None)
        return in_pieces(list_json(_OBSERVATION, kept))

    @router.get("/verdicts", response_model=list[BackendVerdict], openapi_extra=doc)
    async def get_verdicts() -> Response:
        """What is held of each backend by the last plan, with the evidence in words."""
        newest = next((s for s in reversed(publisher.history(HISTORY)) if s.plan is not None), None)
        if newest is None or newest.plan is None:
            return json_of(_VERDICTS, [])
        return json_of(_VERDICTS, verdicts_of(newest.plan, newest))

    @router.get("/plans", response_model=list[Plan], openapi_extra=doc)
    async def get_plans(last: Last = 1) -> Response:
        """The plans of the last ticks, oldest first."""
        kept = (s.plan for s in publisher.history(last) if s.plan is not None)
        return in_pieces(list_json(_PLAN, kept))

    @router.get("/history", response_model=History, openapi_extra=doc)
    async def get_history(
        last: Last = 120,
        backend: Annotated[str | None, Query(max_length=256, description="Of one only.")] = None,
    ) -> Response:
        """T_x, what was expected, rho_bg and the weight over the last ticks, in columns."""
        return in_pieces(history_json(publisher.history(last), backend))

    @router.get("/events", response_model=list[Event], openapi_extra=doc)
    async def get_events(
        last: Annotated[int, Query(ge=1, le=MAX_EVENTS, description="How many.")] = 100,
        after: Annotated[int, Query(ge=0, le=2**53, description="Only with higher numbers.")] = 0,
    ) -> Response:
        """The timeline of decisions, verdicts, writes, orders and trouble, oldest first."""
        return json_of(_EVENTS, publisher.timeline.after(after, last))

    @router.get("/mode", openapi_extra=doc)
    async def get_mode() -> ModeState:
        """Shadow, enforce or frozen, and the operators' orders that hold."""
        return mode_of(parts)

    @router.get("/overrides", openapi_extra=doc)
    async def get_overrides() -> list[Override]:
        """The weights that operators have set for a time."""
        return list(parts.orders.now().overrides)

    @router.get("/model", openapi_extra=doc)
    async def get_model() -> ModelState:
        """The model in use: name, checksum, and its card."""
        model = parts.model
        return ModelState(
            name=model.name,
            checksum=model.checksum(),
            format=model.format,
            card=model.card,
            features=model.features,
        )

    @router.get(
        "/stream",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        openapi_extra=doc,
    )
    async def get_stream() -> Response:
        """Server-sent events: `state` (as `/v1/state`) each tick, `decision` for each event.

        A comment comes every few seconds, so that silence means a broken connection. A reader
        that is too slow misses ticks, never events.
        """
        if streams.full:
            raise IntakeError(
                "too_many_streams",
                f"{streams.limit} live streams are open already (api.max_streams); ask again later",
            )
        return EventStream(parts, streams)

    return router
