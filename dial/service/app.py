"""The HTTP application: samples in, state out.

========================  ======================================================
``POST /v1/samples``      one post of an agent (token); see :mod:`dial.intake.samples`
``GET /v1/state``         the controller now, a row per backend
``GET /v1/observations``  the last N observations, oldest first
``GET /v1/weights``       the weights in force, by long poll; see :mod:`dial.service.feed`
``GET /metrics``          Prometheus' text format
``GET /healthz``          the process lives
``GET /readyz``           it is in control: ticks are fresh, the balancer was read
========================  ======================================================

Reads need no token: on loopback whoever can connect may look, and off loopback the
service does not start without a token for writes.  The weights do where there is one:
a follower keeps a connection, and what it is told it does.
"""

from __future__ import annotations

import hmac
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, SecretStr

from dial import __version__
from dial.clock import Clock
from dial.controller.snapshot import Publisher
from dial.errors import IntakeError
from dial.intake.inbox import Receipt, SampleInbox
from dial.intake.samples import MAX_BODY_BYTES, WireBatch, decode_batch
from dial.metrics import Metrics
from dial.service import errors
from dial.service.feed import WeightDocument, WeightFeed
from dial.service.limits import BodyLimit
from dial.service.token import require_token_off_loopback
from dial.service.views import State, state_of
from dial.settings import Settings
from dial.types import Observation

MAX_OBSERVATIONS = 1_000

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


def create_app(
    settings: Settings,
    *,
    publisher: Publisher,
    inbox: SampleInbox,
    metrics: Metrics,
    clock: Clock,
    token: SecretStr | None,
) -> FastAPI:
    """Build the application.

    Raises
    ------
    SettingError
        If ``settings.api.host`` is not loopback and there is no token.
    """
    require_token_off_loopback(settings.api, token)
    app = FastAPI(
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
    errors.install(app)

    feed = WeightFeed(publisher, settings)

    def authorised(request: Request) -> None:
        try:
            check_token(request.headers.get("authorization"), token)
        except IntakeError as error:
            metrics.sample_batches_refused.labels(error.reason).inc()
            raise

    @app.post(
        "/v1/samples",
        status_code=202,
        dependencies=[Depends(authorised)],
        openapi_extra={"requestBody": _body_schema(), "security": [{"token": []}]},
    )
    async def post_samples(request: Request) -> Receipt:
        """Take in one post of an agent, whole or not at all."""
        try:
            receipt = inbox.offer(decode_batch(await request.body()), clock.now_s())
        except IntakeError as error:
            metrics.sample_batches_refused.labels(error.reason).inc()
            raise
        metrics.count_receipt(receipt)
        return receipt

    @app.get("/v1/state")
    async def get_state() -> State:
        """The controller now."""
        return state_of(
            publisher.current,
            version=__version__,
            percentile=settings.percentile,
            interval_s=settings.interval_s,
        )

    @app.get("/v1/observations")
    async def get_observations(
        last: Annotated[int, Query(ge=1, le=MAX_OBSERVATIONS)] = 1,
    ) -> list[Observation]:
        """The observations of the last ticks, oldest first."""
        history = publisher.history(last)
        return [s.observation for s in history if s.observation is not None]

    @app.get("/v1/weights", openapi_extra={"security": [{"token": []}]} if token else None)
    async def get_weights(
        request: Request,
        after: Annotated[int, Query(ge=-1, le=2**63 - 1)] = -1,
    ) -> WeightDocument:
        """Weights in force, as soon as newer than `after`; needs the token where there is one."""
        if token is not None:
            check_token(request.headers.get("authorization"), token)
        return await feed.newer_than(after)

    @app.get("/healthz")
    async def get_health() -> Health:
        """The process lives."""
        return Health()

    @app.get("/readyz", response_model=Readiness)
    async def get_readiness() -> Readiness | JSONResponse:
        """The last tick is fresh and the balancer was read."""
        try:
            return readiness(publisher, clock.now_s(), settings.interval_s)
        except NotReady as why:
            return errors.answer(503, "not_ready", str(why), "/readyz")

    @app.get("/metrics", response_class=Response)
    async def get_metrics() -> Response:
        """Metrics in Prometheus' text format."""
        metrics.show(publisher.current)
        return Response(metrics.exposition(), media_type=metrics.content_type)

    _complete_schema(app)
    return app


def check_token(authorization: str | None, token: SecretStr | None) -> None:
    """Compare an ``Authorization`` header with the token, in constant time.

    Raises
    ------
    IntakeError
        ``no_token`` if none is configured, ``unauthorized`` if it is absent or wrong.
    """
    if token is None:
        raise IntakeError(
            "no_token",
            "no token is configured, so nothing may be written; set api.token_file",
            "Authorization",
        )
    scheme, _, given = (authorization or "").partition(" ")
    # Bytes, because compare_digest refuses text that is not ASCII; headers are latin-1.
    same = hmac.compare_digest(
        given.strip().encode("latin-1", "replace"), token.get_secret_value().encode()
    )
    if scheme.lower() != "bearer" or not same:
        what = "wrong token" if authorization else "no token was sent"
        raise IntakeError(
            "unauthorized", f"{what}: send 'Authorization: Bearer TOKEN'", "Authorization"
        )


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


def _complete_schema(app: FastAPI) -> None:
    """Add to the OpenAPI document what the body's own decoding keeps from the framework."""
    schema = app.openapi()  # kept by the application and served from then on
    body = WireBatch.model_json_schema(ref_template=_SCHEMA_REF)
    components = schema.setdefault("components", {})
    components["schemas"].update(body.pop("$defs", {}), WireBatch=body)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
