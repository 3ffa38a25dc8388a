"""A member's connection to the fleet's NATS servers, and the two buckets of the key-value store.

Nothing that a member holds for NATS grows without bound: what cannot be sent while the servers are
away is dropped and counted, and so is what comes in faster than it is taken.

``dial_leaders``
    Who leads which service; keys end by themselves after ``fleet.leader_ttl_s``.
``dial_fleet``
    Plan, lease, orders and state of each service, the newest of each.
``dial_parts``
    The state itself, in pieces that a message can hold; forgotten after an hour.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable

import nats
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError, BucketNotFoundError
from nats.js.kv import KeyValue

from dial.errors import FleetError
from dial.service.token import load_token
from dial.settings import FleetSettings
from dial.tls import client_context

CONNECT_S = 10.0
"""For the first connection; later ones are tried for ever."""

REQUEST_S = 2.0
"""For one answer of the store: it takes a millisecond, or the server is away."""

PENDING_BYTES = 16 * 1024 * 1024
"""Kept of a subject for a slow reader, and of what is to be sent while servers are away."""

PENDING_MESSAGES = 65_536

PARTS_S = 3600.0
"""A state is written once a minute, and one older than ``lease.resume_s`` is of no use."""

log = structlog.get_logger("dial.fleet")

OnMessage = Callable[[bytes], None]


class Link:
    """One connection; made by :func:`connect`.

    Attributes
    ----------
    name
        The member's.
    events
        What went wrong, by kind: ``fleet_disconnects``, ``fleet_slow_consumer`` (messages came
        faster than they were taken; the oldest are dropped), ``fleet_not_sent``, ``fleet_errors``.
    leaders, documents, parts
        The buckets.
    """

    leaders: KeyValue
    documents: KeyValue
    parts: KeyValue

    def __init__(self, name: str, events: Counter[str]) -> None:
        self.name = name
        self.events = events
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The connection."""
        assert self._client is not None  # noqa: S101 - set before anybody has the link
        return self._client

    async def publish(self, subject: str, content: bytes) -> None:
        """Send to whoever listens; dropped and counted while nobody can be reached."""
        if not self.client.is_connected:
            # The library would keep it, and hand old windows over when the servers are back.
            self.events["fleet_not_sent"] += 1
            return
        try:
            await self.client.publish(subject, content)
        except Error:
            self.events["fleet_not_sent"] += 1

    async def subscribe(self, subject: str, take: OnMessage) -> Callable[[], Awaitable[None]]:
        """Call ``take`` with each message; returns what ends that."""

        async def call(message: Msg) -> None:
            take(message.data)

        subscription = await self.client.subscribe(
            subject,
            cb=call,
            pending_msgs_limit=PENDING_MESSAGES,
            pending_bytes_limit=PENDING_BYTES,
        )
        return subscription.unsubscribe

    async def aclose(self) -> None:
        """Send what is left, and close."""
        await self.client.close()


async def connect(settings: FleetSettings, events: Counter[str]) -> Link:
    """Connect, and make the buckets where they are not there yet.

    Raises
    ------
    SettingError
        If a setting cannot be used.
    FleetError
        If no server answers, takes the token, or offers JetStream.
    """
    link = Link(settings.name or os.uname().nodename, events)
    token = load_token(settings, "fleet")
    where = ", ".join(settings.servers)
    refusals: list[str] = []

    async def on_error(error: Exception) -> None:
        events["fleet_slow_consumer" if "slow consumer" in str(error) else "fleet_errors"] += 1
        if not events["fleet_errors"]:
            return
        refusals.append(str(error) or type(error).__name__)
        del refusals[:-1]

    async def on_disconnect() -> None:
        events["fleet_disconnects"] += 1
        log.warning("NATS: disconnected", servers=where)

    async def on_reconnect() -> None:
        log.info("NATS: connected again", servers=where)

    try:
        async with asyncio.timeout(CONNECT_S):
            link._client = await nats.connect(
                list(settings.servers),
                name=f"dial {link.name}",
                token=token.get_secret_value() if token else None,
                tls=_tls(settings),
                error_cb=on_error,
                disconnected_cb=on_disconnect,
                reconnected_cb=on_reconnect,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.25,
                pending_size=PENDING_BYTES,
            )
            await _open_buckets(link, settings)
    except (TimeoutError, Error, OSError) as error:
        if link._client is not None:
            await link.aclose()
        why = refusals[-1] if refusals else str(error) or "nobody answers"
        raise FleetError(f"fleet.servers = {where}: {why}") from error
    return link


async def _open_buckets(link: Link, settings: FleetSettings) -> None:
    store = link.client.jetstream(timeout=REQUEST_S)
    replicas = settings.replicas
    link.leaders = await _bucket(store, "dial_leaders", settings.leader_ttl_s, replicas)
    link.documents = await _bucket(store, "dial_fleet", None, replicas)
    link.parts = await _bucket(store, "dial_parts", PARTS_S, replicas)


async def _bucket(
    store: JetStreamContext, name: str, ttl_s: float | None, replicas: int
) -> KeyValue:

    try:
        return await store.key_value(name)
    except BucketNotFoundError:
        pass
    try:
        return await store.create_key_value(bucket=name, ttl=ttl_s, history=1, replicas=replicas)
    except BadRequestError:
        # Another member has just made it, with other settings.
        return await store.key_value(name)


def _tls(settings: FleetSettings) -> ssl.SSLContext | None:
    if not any(server.startswith("tls://") for server in settings.servers):
        return None
    return client_context(
        settings.ca_file,
        settings.cert_file,
        settings.key_file,
        names=("fleet.ca_file", "fleet.cert_file", "fleet.key_file"),
    )
