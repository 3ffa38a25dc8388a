"""The gRPC server: endpoint discovery (alone and aggregated) and the access log service.

Several Envoys may be connected; each stream is a :class:`Client`.  Nothing is answered to an
Envoy that has endpoints already before the weights in force are known (:meth:`XdsServer.publish`):
a control plane that comes back and begins with the configured weights would undo a shift.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest

from dial.errors import BalancerUnreachable
from dial_envoy.access import Gate, Handshakes, credentials
from dial_envoy.fleet import SOON_S
from dial_envoy.options import Options
from dial_envoy.services import register
from dial_envoy.snapshot import TYPE_URL, Snapshot
from dial_envoy.subscription import Heard, Subscription

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Of the access log.  Envoy sends a message when 16 KiB have come together (``buffer_size_bytes``),
and one entry is as long as the headers that it is told to log."""

_MAX_RECEIVED_BYTES = 4 * MAX_MESSAGE_BYTES
"""Past it gRPC itself ends a stream: it says so to the peer, but not to us, who want to count."""

MAX_CLIENTS = 256
"""Streams of discovery at one time; one Envoy needs one."""

FIRST_REQUEST_S = 10.0
"""Within which a stream asks for something: Envoy does when it opens it."""

MAX_LOG_STREAMS = 1024
"""Streams of the access log at one time; one Envoy needs one per worker."""

_SILENT_BEATS = 2
"""Heartbeats that an Envoy may leave without an answer."""

_KEEPALIVE = (
    # A peer that is frozen, or gone without a word, is noticed within 15 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Envoy's own pings (connection_keepalive) are welcome, also on a stream that is silent.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
_OPTIONS = (
    *_KEEPALIVE,
    ("grpc.max_receive_message_length", _MAX_RECEIVED_BYTES),
    # A second controller on one port would get half of the Envoys.
    ("grpc.so_reuseport", 0),
)

OnLog = Callable[[StreamAccessLogsMessage], None]


@dataclass(eq=False, slots=True)
class Client:
    """One stream of one Envoy that asks for endpoints."""

    peer: str
    subscription: Subscription
    node: str = "?"
    has_asked: bool = False
    heard_s: float = field(default_factory=time.monotonic)
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while an answer is to be sent."""

    def __str__(self) -> str:
        return f"node {self.node!r} ({self.peer})"


@dataclass(frozen=True, slots=True)
class Settled:
    """How a snapshot fared.

    Attributes
    ----------
    took
        Envoys that took it.
    refused
        What those said that refused it.
    silent
        Those that said nothing in time.
    """

    took: int = 0
    refused: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def trouble(self) -> tuple[str, ...]:
        """What went wrong, in words."""
        return self.refused + tuple(f"{one} does not answer" for one in self.silent)


class XdsServer:
    """Serves one resource to any number of Envoys.

    Parameters
    ----------
    resource
        Its name.
    options
        Checked options.
    events
        Counted here: what was refused, and why.
    """

    def __init__(self, resource: str, options: Options, events: Counter[str]) -> None:
        self._resource = resource
        self._options = options
        self._events = events
        self._server: grpc.aio.Server | None = None
        self._heart: asyncio.Task[None] | None = None
        self._handshakes = Handshakes(events)
        self._clients: set[Client] = set()
        self._fallback: Snapshot | None = None
        self._current: Snapshot | None = None
        self._changed = asyncio.Condition()
        self._opening = asyncio.Lock()
        self._on_log: OnLog | None = None
        self._log_streams = 0

    @property
    def is_open(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    @property
    def clients(self) -> tuple[Client, ...]:
        """Envoys that ask for our resource now."""
        return tuple(client for client in self._clients if client.subscription.wanted)

    async def open(self, fallback: Snapshot) -> None:
        """Listen, unless it does already.

        Parameters
        ----------
        fallback
            For an Envoy that has no endpoints yet, until :meth:`publish` is called.

        Raises
        ------
        BalancerUnreachable
            If the address cannot be listened on.
        SettingError
            If a token or a certificate cannot be read.
        """
        # The log reader and the first reading open it at the same time.
        async with self._opening:
            if self._server is None:
                self._server = await self._listen()
                self._fallback = fallback
                self._heart = asyncio.create_task(self._beat())

    async def _listen(self) -> grpc.aio.Server:
        gate = Gate.of(self._options, self._events)
        secure = credentials(self._options, self._handshakes)
        server = grpc.aio.server(interceptors=(gate,), options=_OPTIONS)
        register(server, self)
        where = self._options.xds.where
        try:
            if secure is None:
                server.add_insecure_port(where)
            else:
                server.add_secure_port(where, secure)
        except RuntimeError as error:
            raise BalancerUnreachable(
                f"xds {self._options.xds}: cannot listen there; another controller (or another "
                "program) does, or the address is not this computer's"
            ) from error
        await server.start()
        return server

    async def close(self) -> None:
        """Stop listening and end all streams; Envoy keeps what it has."""
        async with self._opening:
            if self._heart is not None:
                self._heart.cancel()
                await asyncio.gather(self._heart, return_exceptions=True)
            if self._server is not None:
                await self._server.stop(grace=None)
            self._server = self._heart = self._current = None
            self._clients.clear()

    def listen_to_log(self, on_log: OnLog | None) -> None:
        """Hand messages of the access log to ``on_log``; drop them where it is ``None``."""
        self._on_log = on_log

    def publish(self, snapshot: Snapshot) -> None:
        """Make ``snapshot`` what every Envoy is to have, and send it to those that have not."""
        self._current = snapshot
        for client in self.clients:
            if client.subscription.is_due(snapshot.version):
                client.due.set()

    async def settled(self, version: str, timeout_s: float) -> Settled:
        """Wait until every Envoy has taken or refused ``version``, at least one in that time.

        When one has, the others get :data:`~dial_envoy.fleet.SOON_S`.
        """

        def some_said() -> bool:
            return any(client.subscription.has_said(version) for client in self.clients)

        def all_said() -> bool:
            return all(client.subscription.has_said(version) for client in self.clients)

        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(some_said)
                async with asyncio.timeout(min(timeout_s, SOON_S)):
                    await self._changed.wait_for(all_said)
        return self.said(version)

    def said(self, version: str) -> Settled:
        """What Envoys have said of ``version`` so far."""
        took, refused, silent = 0, [], []
        for client in self.clients:
            state = client.subscription
            if state.rejected and state.rejected[0] == version:
                refused.append(f"{client} refuses it: {state.rejected[1]}")
            elif state.has_said(version):
                took += 1
            else:
                silent.append(str(client))
        return Settled(took, tuple(refused), tuple(silent))

    # ------------------------------------------------------------------ streams

    async def discover(
        self,
        requests: AsyncIterator[DiscoveryRequest | DeltaDiscoveryRequest],
        context: Any,
        *,
        is_delta: bool,
    ) -> AsyncGenerator[Any, None]:
        """Serve one stream until either side ends it."""
        self._handshakes.called(context.peer())
        if len(self._clients) >= MAX_CLIENTS:
            self._events["xds_too_many_streams"] += 1
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_CLIENTS} streams are open already"
            )
        client = Client(context.peer(), Subscription(self._resource, is_delta))
        self._clients.add(client)
        hearing = asyncio.create_task(self._hear(client, requests))
        due = asyncio.create_task(client.due.wait())
        try:
            while True:
                patience_s = None if client.has_asked else FIRST_REQUEST_S
                await asyncio.wait(
                    (hearing, due), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not (client.has_asked or hearing.done()):
                    await context.abort(
                        grpc.StatusCode.DEADLINE_EXCEEDED,
                        f"nothing was asked for in {FIRST_REQUEST_S:g} s",
                    )
                if hearing.done():
                    refusal = hearing.result()
                    if refusal is not None:
                        await context.abort(*refusal)
                    return
                if not due.done():
                    continue
                client.due.clear()
                due = asyncio.create_task(client.due.wait())
                snapshot = self._for(client)
                if snapshot is not None:
                    yield client.subscription.answer(snapshot)
        finally:
            hearing.cancel()
            due.cancel()
            self._clients.discard(client)
            await self._tell()

    def _for(self, client: Client) -> Snapshot | None:
        """What this Envoy is to have; ``None`` while that is not known."""
        if self._current is None and not client.subscription.had:
            return self._fallback
        return self._current

    async def _hear(
        self, client: Client, requests: AsyncIterator[DiscoveryRequest | DeltaDiscoveryRequest]
    ) -> tuple[grpc.StatusCode, str] | None:
        """Take requests in until the stream ends; why it has to end, where we end it."""
        is_first = True
        async for request in requests:
            client.heard_s, client.has_asked = time.monotonic(), True
            refusal = self._refusal(client, request, is_first=is_first)
            if refusal is None:
                self._take(client, client.subscription.hear(request))
                refusal = self._asks_for_nothing(client, is_first=is_first)
            if refusal is not None:
                _log.warning("xds: %s: %s", client, refusal[1])
                return refusal
            is_first = False
            await self._tell()
        return None

    def _refusal(
        self, client: Client, request: DiscoveryRequest | DeltaDiscoveryRequest, *, is_first: bool
    ) -> tuple[grpc.StatusCode, str] | None:
        """Whether the stream may not go on with this request."""
        if is_first:
            client.node = ascii(request.node.id[:100])[1:-1]
            if self._options.nodes and request.node.id not in self._options.nodes:
                self._events["xds_unknown_node"] += 1
                return (
                    grpc.StatusCode.PERMISSION_DENIED,
                    f"node id '{client.node}' is not among DIAL's option nodes",
                )
        if request.type_url not in (TYPE_URL, ""):
            self._events["xds_unknown_type"] += 1
            kind = ascii(request.type_url[:100])[1:-1]
            return (
                grpc.StatusCode.UNIMPLEMENTED,
                f"DIAL serves endpoints only ({TYPE_URL}), not {kind}",
            )
        return None

    def _asks_for_nothing(
        self, client: Client, *, is_first: bool
    ) -> tuple[grpc.StatusCode, str] | None:
        state = client.subscription
        if not is_first or state.wanted:
            return None
        names = ", ".join(ascii(name[:100])[1:-1] for name in sorted(state.unknown)[:3])
        return (
            grpc.StatusCode.NOT_FOUND,
            f"DIAL has no endpoints for cluster {names or '(none named)'}; it has {self._resource}",
        )

    def _take(self, client: Client, heard: Heard) -> None:
        state = client.subscription
        self._events["xds_unknown_cluster"] += len(state.unknown) if heard is not Heard.ACKED else 0
        match heard:
            case Heard.ASKED:
                client.due.set()
            case Heard.ACKED:
                self._events["xds_acks"] += 1
            case Heard.NACKED:
                self._events["xds_nacks"] += 1
                _log.error("xds: %s refuses version %s: %s", client, *(state.rejected or ("", "")))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _beat(self) -> None:
        """Send what is in force again, now and then: who answers is alive, and so are we."""
        while True:
            await asyncio.sleep(self._options.heartbeat_s)
            self._handshakes.count()
            for client in self.clients:
                silent_s = time.monotonic() - client.heard_s
                if silent_s > _SILENT_BEATS * self._options.heartbeat_s:
                    self._events["xds_silent"] += 1
                    _log.warning("xds: %s has said nothing for %.0f s", client, silent_s)
                # Not what it has refused: it would only refuse it again.
                if client.subscription.rejected is None:
                    client.due.set()

    # ------------------------------------------------------------------ access log

    async def take_logs(
        self, messages: AsyncIterator[StreamAccessLogsMessage], context: Any
    ) -> None:
        """Read one stream of the access log until it ends."""
        self._handshakes.called(context.peer())
        if self._log_streams >= MAX_LOG_STREAMS:
            self._events["xds_too_many_streams"] += 1
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{MAX_LOG_STREAMS} streams of the access log are open already",
            )
        self._log_streams += 1
        try:
            await self._read_log(messages, context)
        finally:
            self._log_streams -= 1

    async def _read_log(
        self, messages: AsyncIterator[StreamAccessLogsMessage], context: Any
    ) -> None:
        async for message in messages:
            if message.ByteSize() > MAX_MESSAGE_BYTES:
                self._events["log_messages_too_long"] += 1
                _log.warning("log grpc: %s sent %d bytes", context.peer(), message.ByteSize())
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"a message of the access log may have {MAX_MESSAGE_BYTES} bytes",
                )
            if self._on_log is not None:
                self._on_log(message)
