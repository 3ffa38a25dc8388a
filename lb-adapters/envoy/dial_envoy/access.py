"""Who may speak to us: a token in each call's metadata, a certificate of a known authority."""

from __future__ import annotations

import hmac
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from dial.errors import SettingError
from dial_envoy.options import Options

_log = logging.getLogger(__name__)

_LEAST_TOKEN = 16
"""Characters: 64 random bits at four bits each."""

CALL_WITHIN_S = 10.0
"""From the begin of a handshake to the first call; Envoy calls at once."""

_MAX_HANDSHAKES = 4096
"""Remembered at one time; past it the oldest are forgotten."""


class Gate(grpc.aio.ServerInterceptor):
    """Turns calls away that do not carry the token.

    Parameters
    ----------
    token
        What has to be sent; nothing, where ``None``.
    events
        Counts who was turned away.
    """

    def __init__(self, token: str | None, events: Counter[str]) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._events = events

    @classmethod
    def of(cls, options: Options, events: Counter[str]) -> Self:
        """With the token of ``token_file``.

        Raises
        ------
        SettingError
            If it cannot be read, or is too short.
        """
        if options.token_file is None:
            return cls(None, events)
        token = _read("token_file", options.token_file).decode("utf-8", errors="replace").strip()
        if len(token) < _LEAST_TOKEN or not (token.isascii() and token.isprintable()):
            raise SettingError(
                f"adapter.options.token_file = {str(options.token_file)!r}: allowed is a token of "
                f"{_LEAST_TOKEN} printable characters or more"
            )
        return cls(token, events)

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        """Let the call through, or answer it ourselves (grpc's interface)."""
        handler = await continuation(handler_call_details)
        if self._expected is None or handler is None:
            return handler
        sent = dict(handler_call_details.invocation_metadata).get("authorization", "")
        given = sent if isinstance(sent, bytes) else sent.encode()
        if hmac.compare_digest(given, self._expected):
            return handler
        self._events["xds_bad_token"] += 1
        _log.warning("xds: %s: no token, or a wrong one", handler_call_details.method)
        return _refusing(handler)


def _refusing(handler: Any) -> Any:
    """A handler of the same shape that answers UNAUTHENTICATED."""

    async def refuse(_: object, context: Any) -> None:
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED,
            "DIAL needs 'authorization: Bearer TOKEN' in the call's initial_metadata",
        )

    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.response_streaming
        else grpc.stream_unary_rpc_method_handler
    )
    return make(refuse, handler.request_deserializer, handler.response_serializer)


class Handshakes:
    """Counts connections of TLS that come to nothing.

    Who has no certificate, or one of another authority, is turned away by TLS itself, which
    tells nobody: only that a handshake begins is seen.  An Envoy calls as soon as it has one, so
    a handshake that no call follows was refused (or was no Envoy's).

    Parameters
    ----------
    events
        Counted here.
    now
        Seconds.
    """

    def __init__(self, events: Counter[str], now: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._now = now
        self._begun_s: deque[float] = deque(maxlen=_MAX_HANDSHAKES)
        self._peers: deque[str] = deque(maxlen=_MAX_HANDSHAKES)

    def begin(self) -> None:
        """A handshake begins; grpc says so from a thread of its own."""
        self._begun_s.append(self._now())

    def called(self, peer: str) -> None:
        """A call came in on the connection of this peer: its handshake was a good one."""
        if peer in self._peers:
            return
        self._peers.append(peer)
        with suppress(IndexError):
            self._begun_s.popleft()

    def count(self) -> None:
        """Count those that have been waiting for their call too long."""
        while self._begun_s and self._now() - self._begun_s[0] > CALL_WITHIN_S:
            self._begun_s.popleft()
            self._events["xds_tls_refused"] += 1
            _log.warning(
                "xds: a TLS connection made no call in %g s: no certificate of tls_client_ca_file?",
                CALL_WITHIN_S,
            )


def credentials(options: Options, handshakes: Handshakes) -> grpc.ServerCredentials | None:
    """Certificates of the server, and whose clients' it asks for; ``None`` without TLS.

    Parameters
    ----------
    options
        Checked options.
    handshakes
        Told of each one.

    Raises
    ------
    SettingError
        If a file cannot be read.
    """
    if options.tls_cert_file is None or options.tls_key_file is None:
        return None
    pair = (
        _read("tls_key_file", options.tls_key_file),
        _read("tls_cert_file", options.tls_cert_file),
    )
    if options.tls_client_ca_file is None:
        return grpc.ssl_server_credentials([pair])
    authority = _read("tls_client_ca_file", options.tls_client_ca_file)
    # Asked for a new certificate at every handshake, and never has one.
    return grpc.dynamic_ssl_server_credentials(
        grpc.ssl_server_certificate_configuration([pair], authority),
        handshakes.begin,  # type: ignore[arg-type]  # may return None, says grpc
        require_client_authentication=True,
    )


def _read(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(
            f"adapter.options.{option} = {str(path)!r}: {error.strerror or error}"
        ) from error
