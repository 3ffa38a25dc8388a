"""Who may speak to us: a token in each call's metadata, a certificate of a known authority."""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from dial.errors import SettingError
from dial_envoy.options import Options

_log = logging.getLogger(__name__)

_LEAST_TOKEN = 16
"""Characters: 64 random bits at four bits each."""


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


def credentials(options: Options) -> grpc.ServerCredentials | None:
    """Certificates of the server, and whose clients' it asks for; ``None`` without TLS.

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
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=True)


def _read(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(
            f"adapter.options.{option} = {str(path)!r}: {error.strerror or error}"
        ) from error
