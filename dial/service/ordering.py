"""Endpoints by which operators give orders; each needs their token and is logged with its address.

An order to freeze is answered when no write is under way, and none begins after the answer.
"""

from __future__ import annotations

from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dial.errors import IntakeError
from dial.intake.orders import MAX_OVERRIDE_S
from dial.service.parts import Parts
from dial.service.reading import ModeState, mode_of
from dial.service.token import Role
from dial.settings import describe
from dial.types import Action, Override

log = structlog.get_logger("dial.controller")

Backend = Annotated[str, Path(max_length=256, description="Its name at the load balancer.")]


class OverrideOrder(BaseModel):
    """A weight for a time."""

    model_config = ConfigDict(extra="forbid", strict=True)

    weight: int = Field(
        ge=0, le=1_000_000, description="Within the range that the load balancer's adapter takes."
    )
    for_s: float = Field(
        ge=1.0, le=MAX_OVERRIDE_S, allow_inf_nan=False, description="Seconds until it ends."
    )


def ordering(parts: Parts) -> APIRouter:
    """The endpoints."""
    router = APIRouter(prefix="/v1", dependencies=[Depends(parts.operator)])
    doc = parts.security(Role.OPERATOR)
    orders = parts.orders

    @router.put("/freeze", openapi_extra=doc)
    async def put_freeze(request: Request) -> ModeState:
        """Freeze: no weight is written after the answer, until unfrozen; verdicts go on."""
        await orders.freeze()
        log.warning("frozen by an operator", address=_address(request))
        return mode_of(parts)

    @router.delete("/freeze", openapi_extra=doc)
    async def delete_freeze(request: Request) -> ModeState:
        """Unfreeze: the next tick goes on from what is in force."""
        orders.unfreeze()
        log.warning("unfrozen by an operator", address=_address(request))
        return mode_of(parts)

    @router.put(
        "/overrides/{backend}",
        openapi_extra=doc
        | {
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _schema(OverrideOrder)}},
            }
        },
    )
    async def put_override(backend: Backend, request: Request) -> Override:
        """Give a backend its weight for a time, from the next tick on; it ends by itself."""
        order = _order(await request.body())
        plan = parts.publisher.current.plan
        if plan is not None and plan.action is Action.YIELD:
            raise IntakeError("yielded", f"{plan.reason}; put these back first", "backend")
        given = orders.override(backend, order.weight, order.for_s)
        log.warning(
            "weight set by an operator",
            backend=backend,
            weight=given.weight,
            for_s=order.for_s,
            address=_address(request),
        )
        return given

    @router.delete("/overrides/{backend}", openapi_extra=doc)
    async def delete_override(backend: Backend, request: Request) -> ModeState:
        """End an override before its time; the next tick takes the weight back."""
        orders.end_override(backend)
        log.warning("override ended by an operator", backend=backend, address=_address(request))
        return mode_of(parts)

    return router


def _order(body: bytes) -> OverrideOrder:
    # Not the framework's own reading of bodies, which would answer 400 to one that is too large.
    try:
        return OverrideOrder.model_validate_json(body)
    except ValidationError as error:
        reason = "malformed" if error.errors()[0]["type"] == "json_invalid" else "parameter"
        raise IntakeError(reason, describe(error)[:500], "body") from error


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _address(request: Request) -> str:
    return request.client.host if request.client else "unknown"
