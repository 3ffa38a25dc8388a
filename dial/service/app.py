"""The HTTP application: samples and orders in, state out.

========================  ======================================================
``POST /v1/samples``      one post of an agent; see :mod:`dial.intake.samples`
``GET /v1/...``           what is seen, decided and written; :mod:`dial.service.reading`
``GET /v1/stream``        the same, live; :mod:`dial.service.stream`
``PUT, DELETE /v1/...``   operators' orders; :mod:`dial.service.ordering`
``GET /v1/weights``       the weights in force, by long poll; see :mod:`dial.service.feed`
``GET /``                 the dashboard; :mod:`dial.service.page`
``GET /metrics``          Prometheus' text format
``GET /healthz``          the process lives
``GET /readyz``           it is in control: ticks are fresh, the balancer was read
========================  ======================================================

Who may do what is in :mod:`dial.service.token`.  No endpoint waits for a tick, and none makes a
tick wait: what is shown are published values, and what comes in is kept for the next tick.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from dial import __version__
from dial.controller.snapshot import Publisher
from dial.errors import IntakeError
from dial.intake.inbox import Receipt
from dial.intake.samples import MAX_BODY_BYTES, WireBatch, decode_batch
from dial.service import errors
from dial.service.feed import WeightDocument, WeightFeed
from dial.service.limits import BodyLimit, RateLimit
from dial.service.ordering import ordering
from dial.service.page import page
from dial.service.parts import Parts
from dial.service.reading import reading
from dial.service.token import Role, require_token_off_loopback

FRESH_INTERVALS = 3.0
"""Ticks older than this many intervals are stale: one may be late, one may be lost."""


class Health(BaseModel):
    """The process lives; that is all it says."""

    status: Literal["alive"] = "alive"
    version: str = __version__


class Readiness(BaseModel):
    """The controller is in control."""

    status: Literal["ready"] = "ready"
    tick: int
    age_s: float


def create_app(parts: Parts) -> FastAPI:
    """Build the application.

    Raises
    ------
    SettingError
        If ``settings.api.host`` is not loopback and agents have no token.
    """
    settings, publisher, metrics = parts.settings, parts.publisher, parts.metrics
    require_token_off_loopback(settings.api, parts.tokens.agent)
    app = _Application(
        title="DIAL controller",
        version=__version__,
        # The documentation pages would load scripts from a third party's host.
        docs_url=None,
        redoc_url=None,
        # A redirect would be an answer of another shape.
        redirect_slashes=False,
        responses={"default": {"model": errors.ErrorAnswer}},
    )
    app.add_middleware(BodyLimit, limit_bytes=MAX_BODY_BYTES)
    app.add_middleware(
        RateLimit,
        per_s=settings.api.rate_per_s,
        clock=parts.clock,
        refused=metrics.requests_limited.inc,
    )
    routers = (reading(parts), ordering(parts), page())
    for router in routers:
        app.include_router(router)

    feed = WeightFeed(publisher, settings)

    async def agent(request: Request) -> None:
        try:
            await parts.agent(request)
        except IntakeError as error:
            metrics.sample_batches_refused.labels(error.reason).inc()
            raise

    @app.post(
        "/v1/samples",
        status_code=202,
        dependencies=[Depends(agent)],
        openapi_extra={"requestBody": _body_schema(), **parts.security(Role.AGENT)},
    )
    async def post_samples(request: Request) -> Receipt:
        """Take in one post of an agent, whole or not at all."""
        try:
            receipt = parts.inbox.offer(decode_batch(await request.body()), parts.clock.now_s())
        except IntakeError as error:
            metrics.sample_batches_refused.labels(error.reason).inc()
            raise
        metrics.count_receipt(receipt)
        return receipt

    @app.get(
        "/v1/weights",
        dependencies=[Depends(parts.follower)],
        openapi_extra=parts.security(Role.AGENT, Role.READ, Role.OPERATOR)
        if parts.tokens.agent or parts.tokens.read
        else None,
    )
    async def get_weights(
        after: Annotated[int, Query(ge=-1, le=2**63 - 1)] = -1,
    ) -> WeightDocument:
        """Weights in force, as soon as newer than `after`; needs a token where there is one."""
        return await feed.newer_than(after)

    @app.get("/healthz")
    async def get_health() -> Health:
        """The process lives."""
        return Health()

    @app.get("/readyz", response_model=Readiness)
    async def get_readiness() -> Readiness | JSONResponse:
        """The last tick is fresh and the balancer was read."""
        try:
            return readiness(publisher, parts.clock.now_s(), settings.interval_s)
        except NotReady as why:
            return errors.answer(503, "not_ready", str(why), "/readyz")

    @app.get(
        "/metrics",
        response_class=Response,
        dependencies=[Depends(parts.reader)],
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        openapi_extra=parts.read_security,
    )
    async def get_metrics() -> Response:
        """Metrics in Prometheus' text format."""
        metrics.show(publisher.current)
        return Response(metrics.exposition(), media_type=metrics.content_type)

    routes = [route for part in (app, *routers) for route in part.routes]
    errors.install(app, routes)  # its middleware last, so that it is around all others
    return app


class NotReady(Exception):
    """Why the controller is not in control."""


def readiness(publisher: Publisher, now_s: float, interval_s: float) -> Readiness:
    """Say that the controller is in control.

    Raises
    ------
    NotReady
        If the balancer has not been read, or not within the last few intervals.
    """
    # One tick without a reading is trouble, not yet a loss of control.
    recent = publisher.history(int(FRESH_INTERVALS))
    trouble = publisher.current.trouble
    because = f": {trouble}" if trouble else ""
    observation = next((s.observation for s in reversed(recent) if s.observation), None)
    if observation is None:
        raise NotReady(f"no recent tick has read the load balancer{because}")
    age_s = now_s - observation.now_s
    if age_s > FRESH_INTERVALS * interval_s:
        raise NotReady(
            f"the last tick that read the load balancer is {age_s:.1f} s old, at most "
            f"{FRESH_INTERVALS * interval_s:g} s are allowed{because}"
        )
    return Readiness(tick=observation.tick, age_s=age_s)


_SCHEMA_REF = "#/components/schemas/{model}"


def _body_schema() -> dict[str, Any]:
    schema = {"$ref": _SCHEMA_REF.format(model="WireBatch")}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The document, with what the samples' own decoding keeps from the framework.

        Made when it is first asked for: it takes longer than all else at the start.
        """
        if self.openapi_schema is None:
            schema = super().openapi()
            body = WireBatch.model_json_schema(ref_template=_SCHEMA_REF)
            components = schema.setdefault("components", {})
            components["schemas"].update(body.pop("$defs", {}), WireBatch=body)
            components["securitySchemes"] = {
                role.value: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"Token of the role {role}",
                }
                for role in Role
            }
        return self.openapi_schema or {}
