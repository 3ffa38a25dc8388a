"""What the endpoints share: the controller's outside, who may call, and JSON that is made once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from dial import __version__
from dial.clock import Clock
from dial.controller.snapshot import Publisher, Snapshot
from dial.intake.inbox import SampleInbox
from dial.intake.orders import OrderBook
from dial.metrics import Metrics
from dial.model import ModelDocument
from dial.service.token import Role, Tokens
from dial.service.views import State, state_of
from dial.settings import Settings

_STATE = TypeAdapter(State)


@dataclass
class Parts:
    """What a controller hands to its service.

    Attributes
    ----------
    settings, model
        As configured.
    publisher
        What is shown.
    inbox, orders
        What comes in.
    metrics, clock, tokens
        For all endpoints.
    """

    settings: Settings
    model: ModelDocument
    publisher: Publisher
    inbox: SampleInbox
    orders: OrderBook
    metrics: Metrics
    clock: Clock
    tokens: Tokens
    _shown: Snapshot | None = field(default=None, init=False)
    _state_json: bytes = field(default=b"", init=False)

    def state_json(self) -> bytes:
        """The state as JSON, made once a snapshot, whoever asks and streams it."""
        snapshot = self.publisher.current
        if snapshot is not self._shown:
            state = state_of(
                snapshot,
                version=__version__,
                percentile=self.settings.percentile,
                interval_s=self.settings.interval_s,
            )
            self._shown, self._state_json = snapshot, _STATE.dump_json(state)
        return self._state_json

    # ------------------------------------------------------------ dependencies of endpoints

    async def reader(self, request: Request) -> None:
        """Let a reader in: anybody, where reading needs no token."""
        if self.tokens.read is not None:
            self.tokens.require(_header(request), Role.READ, Role.OPERATOR)

    async def follower(self, request: Request) -> None:
        """Let a follower of the weights in: it keeps a connection, and what it is told it does."""
        if self.tokens.agent is not None or self.tokens.read is not None:
            self.tokens.require(_header(request), Role.AGENT, Role.READ, Role.OPERATOR)

    async def operator(self, request: Request) -> None:
        """Let an operator in."""
        self.tokens.require(_header(request), Role.OPERATOR)

    async def agent(self, request: Request) -> None:
        """Let an agent in; as all others a coroutine, for which no thread has to be woken."""
        self.tokens.require(_header(request), Role.AGENT)

    def security(self, *roles: Role) -> dict[str, Any]:
        """What the OpenAPI document says of an endpoint that needs the token of one of these."""
        return {"security": [{role.value: []} for role in roles]}

    @property
    def read_security(self) -> dict[str, Any]:
        """The same for what is shown."""
        return self.security(Role.READ, Role.OPERATOR) if self.tokens.read else {}


def json_of(adapter: TypeAdapter[Any], value: object) -> Response:
    """Answer with a value that is known to fit: made in one go, without checking it again."""
    return Response(adapter.dump_json(value), media_type="application/json")


def list_json(adapter: TypeAdapter[Any], values: Iterable[object]) -> Iterator[bytes]:
    """A list as JSON, an item a piece."""
    yield b"["
    for number, value in enumerate(values):
        yield (b"," if number else b"") + adapter.dump_json(value)
    yield b"]"


def in_pieces(pieces: Iterator[bytes]) -> Response:
    """Answer with what is long: between two pieces a tick that is due is not kept waiting."""

    async def given() -> AsyncIterator[bytes]:
        for piece in pieces:
            if piece:
                yield piece
            await asyncio.sleep(0)

    return StreamingResponse(given(), media_type="application/json")


def _header(request: Request) -> str | None:
    return request.headers.get("authorization")
