r"""The same bodies to a fleet's NATS server: published, and known to have arrived there.

NATS's protocol is lines of text (docs.nats.io, "Client protocol"), and publishing needs four of
them, so the agent does with the standard library here as well::

    < INFO {...}                        > CONNECT {...}
    > PUB subject 431\r\n...\r\n        > PING
    < PONG                              or < -ERR '...'

A PONG says that the server has taken what came before it.  It does not say that a controller has:
while none leads, samples are lost, and the next ones are newer.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from dial.agent.client import Kind, Outcome
from dial.errors import SettingError

PORT = 4222

_TIMEOUT_S = 5.0
"""For connecting and for each answer, as over HTTP."""

_MOST_LINE_BYTES = 65_536
"""Of one line of a server; its INFO names all servers of its cluster."""

_DENIED = ("authorization", "authentication", "permissions")
"""Words of an error that nobody but an admin can mend."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server is, and the service that samples are for."""

    secure: bool
    host: str
    port: int
    service: str

    def __str__(self) -> str:
        return f"{'tls' if self.secure else 'nats'}://{self.host}:{self.port}/{self.service}"


def parse_server(url: str) -> Server:
    """Read the server's URL.

    Raises
    ------
    SettingError
        If it is not ``nats://HOST[:PORT]/SERVICE`` or the same with ``tls``.
    """
    allowed = "allowed: nats://HOST[:PORT]/SERVICE or tls://HOST[:PORT]/SERVICE"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SettingError(f"--controller: {error}; {allowed}") from error
    if "@" in parts.netloc:
        raise SettingError(f"--controller: holds a user name or password; {allowed}")
    service = unquote(parts.path.strip("/"))
    if not parts.hostname or not service or parts.query or parts.fragment:
        raise SettingError(f"--controller {url!r}: {allowed}")
    return Server(parts.scheme == "tls", parts.hostname, port or PORT, service)


class _Refused(Exception):
    """The server has said why it will not."""


class NatsClient:
    """Publishes bodies on one subject.  For one thread.

    Parameters
    ----------
    server, subject
        Where to.
    name
        Shown by the server.
    token
        Sent when connecting; appears in no message.
    ca_file, cert_file, key_file
        As for https.
    timeout_s
        For connecting and for each answer.

    Raises
    ------
    SettingError
        If one of these files cannot be used.
    """

    def __init__(
        self,
        server: Server,
        subject: str,
        name: str,
        token: str,
        ca_file: str | None = None,
        *,
        cert_file: str | None = None,
        key_file: str | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._server = server
        self._subject = subject
        self._hello = {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "1",
            "name": name,
            "auth_token": token,
            "tls_required": server.secure,
        }
        self._token = token
        self._tls = None
        if server.secure:
            from dial.tls import client_context  # noqa: PLC0415 - only where it is wanted

            self._tls = client_context(ca_file, cert_file, key_file)
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._unread = b""
        self._max_payload = 0

    def post(self, body: bytes) -> Outcome:
        """Publish one body; never raises for what the network does.

        A connection that was kept may have been closed meanwhile, which shows only now; that is
        tried once more on a new one.
        """
        was_open = self._socket is not None
        outcome = self._attempt(body)
        if outcome is None and was_open:
            outcome = self._attempt(body)
        return outcome or Outcome(Kind.FAILED, "connection closed before an answer came")

    def close(self) -> None:
        """Give back the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _attempt(self, body: bytes) -> Outcome | None:
        """Publish once; ``None`` if the connection broke before an answer."""
        try:
            connection = self._socket or self._connect()
            if self._max_payload and len(body) > self._max_payload:
                return Outcome(Kind.REFUSED, f"{len(body)} bytes: the server takes less")
            head = f"PUB {self._subject} {len(body)}\r\n".encode()
            connection.sendall(head + body + b"\r\nPING\r\n")
            self._until_pong(connection)
        except (ConnectionResetError, BrokenPipeError):
            self.close()
            return None
        except TimeoutError:
            self.close()
            return Outcome(Kind.FAILED, "timed out")
        except _Refused as refusal:
            self.close()
            message = self._harmless(str(refusal))
            denied = any(word in message.lower() for word in _DENIED)
            return Outcome(Kind.DENIED if denied else Kind.FAILED, message)
        except (OSError, ValueError) as error:
            self.close()
            return Outcome(Kind.FAILED, self._harmless(f"{type(error).__name__}: {error}"))
        return Outcome(Kind.ACCEPTED)

    def _connect(self) -> socket.socket:
        address = (self._server.host, self._server.port)
        connection = socket.create_connection(address, self._timeout_s)
        self._socket, self._unread = connection, b""
        info = json.loads(self._line(connection).removeprefix(b"INFO "))
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_hostname=self._server.host)
            self._socket = connection
        self._max_payload = int(info.get("max_payload", 0))
        hello = json.dumps(self._hello, separators=(",", ":")).encode()
        connection.sendall(b"CONNECT " + hello + b"\r\nPING\r\n")
        self._until_pong(connection)
        return connection

    def _until_pong(self, connection: socket.socket) -> None:
        while (line := self._line(connection)) != b"PONG":
            if line == b"PING":
                connection.sendall(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise _Refused(line.decode("utf-8", "replace"))

    def _line(self, connection: socket.socket) -> bytes:
        while b"\r\n" not in self._unread:
            received = connection.recv(4096)
            if not received:
                raise ConnectionResetError
            self._unread += received
            if len(self._unread) > _MOST_LINE_BYTES:
                raise ValueError("a line too long for a NATS server")
        line, _, self._unread = self._unread.partition(b"\r\n")
        return line

    def _harmless(self, message: str) -> str:
        line = "".join(c if c.isprintable() else " " for c in message)
        return line.replace(self._token, "[token]")[:300]
