"""One shape for everything that goes wrong, whoever notices it.

    {"error": {"code": "stale", "message": "...", "where": "samples[0].at_s"}}

The framework's own answers (404, 405, 422, 500) would each have a shape of their own;
its 422 also echoes the input, which may hold NaN (not JSON) or a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http.client import METHOD_NOT_ALLOWED
from typing import cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dial.errors import IntakeError

_log = structlog.get_logger(__name__)

_STATUS = {
    "malformed": 400,
    "version": 400,
    "too_large": 413,
    "too_many": 413,
    "not_ready": 503,
    "unauthorized": 401,
    "no_token": 403,
    "forbidden": 403,
    "not_found": 404,
    "not_enforcing": 409,
    "frozen": 409,
    "yielded": 409,
    "not_leader": 409,
    "too_many_streams": 429,
}
"""Status of an :class:`IntakeError` by reason; 422 for the others: JSON, but not allowed."""

_CODES = {
    400: "malformed",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    500: "internal",
}


class ErrorBody(BaseModel):
    """What is wrong."""

    code: str
    """One of a fixed set, for programs."""
    message: str
    """For people: what, where, what is allowed."""
    where: str
    """The field or path at fault."""


class ErrorAnswer(BaseModel):
    """Every answer that is not a success."""

    error: ErrorBody


def answer(
    status: int, code: str, message: str, where: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Build an error answer."""
    body = ErrorAnswer(error=ErrorBody(code=code, message=message, where=where))
    return JSONResponse(body.model_dump(), status, headers=dict(headers or {}))


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make every error of ``app``, which has these routes, answer in the one shape."""

    async def refuse(request: Request, error: Exception) -> JSONResponse:
        return _http(request, cast("HTTPException", error), routes)

    app.add_exception_handler(IntakeError, _intake)
    app.add_exception_handler(RequestValidationError, _parameter)
    app.add_exception_handler(HTTPException, refuse)
    app.add_middleware(ErrorBoundary)


async def _intake(_: Request, error: Exception) -> JSONResponse:
    refused = cast("IntakeError", error)
    headers = {}
    if refused.reason == "unauthorized":
        headers["WWW-Authenticate"] = 'Bearer realm="dial"'
    if refused.reason in ("not_ready", "too_many_streams"):
        headers["Retry-After"] = "5"
    if refused.reason == "too_large":
        # The rest of the body is still on its way and will not be read.
        headers["Connection"] = "close"
    status = _STATUS.get(refused.reason, 422)
    return answer(status, refused.reason, str(refused), refused.where, headers)


async def _parameter(_: Request, error: Exception) -> JSONResponse:
    problem = cast("RequestValidationError", error).errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return answer(422, "parameter", f"{where}: {problem['msg']}", where)


def _http(request: Request, problem: HTTPException, routes: Sequence[BaseRoute]) -> JSONResponse:
    path, status = request.url.path, problem.status_code
    headers = dict(problem.headers or {})
    if status == METHOD_NOT_ALLOWED:
        # The framework names the methods of the first route of that path alone.
        there = [r for r in routes if isinstance(r, Route) and r.path_regex.match(path)]
        headers["Allow"] = ", ".join(sorted({m for r in there for m in r.methods or ()}))
    message = f"{request.method} {path}: {problem.detail}"
    return answer(status, _CODES.get(status, "http"), message, path, headers)


class ErrorBoundary:
    """Turns what nobody expected into a 500 of the usual shape.

    Starlette's own handler for ``Exception`` answers and then raises again, so that the
    server logs the traceback a second time, past our formatting.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; answer for it when it fails."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return  # nobody is left to answer
        except Exception:
            # Path and method only: headers carry the token, the body is somebody's data.
            _log.exception("request failed", method=scope["method"], path=scope["path"])
            if started:
                raise  # half an answer is out; the server must break the connection
            message = "the controller failed to answer; its log says why"
            await answer(500, "internal", message, scope["path"])(scope, receive, send)
