"""One post to the controller over a connection kept alive, and what its answer means.

``http.client`` and nothing more: it follows no redirect and knows no proxy, which here
are virtues (a redirect would carry the token elsewhere), and it is small.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from dial.errors import SettingError

SAMPLES_PATH = "/v1/samples"

_TIMEOUT_S = 5.0
"""For connecting and for each read.  The answer takes milliseconds; a controller that
needs longer is as good as away, and the samples are kept."""

_MOST_BODY_BYTES = 16_384
"""Of an answer; a longer one is no answer of ours and ends the connection."""

_MOST_MESSAGE_CHARS = 300


class Kind(Enum):
    """What an answer means for the samples."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """These samples will never be taken; others may be."""
    DENIED = "denied"
    """No samples of ours will be taken until somebody changes something."""
    FAILED = "failed"
    """Not delivered this time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one post."""

    kind: Kind
    message: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the controller is."""

    secure: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


def parse_endpoint(url: str) -> Endpoint:
    """Read the controller's base URL.

    Raises
    ------
    SettingError
        If it is not ``http[s]://HOST[:PORT][/PREFIX]``.  A user name or password in it is
        refused, and not repeated: command lines are everybody's to read.
    """
    allowed = "allowed: http://HOST[:PORT] or https://HOST[:PORT], with or without a /PREFIX"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SettingError(f"--controller: {error}; {allowed}") from error
    if "@" in parts.netloc:
        raise SettingError(f"--controller: holds a user name or password; {allowed}")
    if any(character <= " " or character > "~" for character in url):
        raise SettingError(f"--controller {url!r}: holds blanks or no ASCII; {allowed}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingError(f"--controller {url!r}: {allowed}")
    secure = parts.scheme == "https"
    # Port 0 is no port to connect to, so "or" treats it as not given.
    port = port or (443 if secure else 80)
    return Endpoint(secure, parts.hostname, port, parts.path.rstrip("/") + SAMPLES_PATH)


class Client:
    """Posts bodies to one endpoint.  For one thread.

    Parameters
    ----------
    endpoint
        Where to.
    token
        Sent with each post as a bearer token; appears in no message.
    ca_file
        Certificates to trust instead of the system's, for https.
    cert_file, key_file
        Own certificate and its key, where the controller asks for one.
    timeout_s
        For connecting and for each read.

    Raises
    ------
    SettingError
        If one of these files cannot be used.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        token: str,
        ca_file: str | None = None,
        timeout_s: float = _TIMEOUT_S,
        *,
        cert_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._token = token
        self._connection = _connection(endpoint, ca_file, cert_file, key_file, timeout_s)

    def post(self, body: bytes) -> Outcome:
        """Send one body and read the answer; never raises for what the network does.

        A connection that was kept alive may have been closed by the other side meanwhile,
        which shows only now; that is tried once more on a new one.  So a body can arrive
        twice, and the controller knows a sample by agent and time.
        """
        was_open = self._connection.sock is not None
        outcome = self._attempt(body)
        if outcome is None and was_open:
            outcome = self._attempt(body)
        return outcome or Outcome(Kind.FAILED, "connection closed before an answer came")

    def close(self) -> None:
        """Give back the socket."""
        self._connection.close()

    def _attempt(self, body: bytes) -> Outcome | None:
        """Post once; ``None`` if the connection broke before an answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            if self._connection.sock is None:
                self._connection.connect()
            self._cork(True)
            self._connection.request("POST", self._endpoint.path, body, headers)
            self._cork(False)
            answer = self._connection.getresponse()
            text = answer.read(_MOST_BODY_BYTES)
            if not answer.isclosed():
                self._connection.close()
        except (ConnectionResetError, BrokenPipeError):  # RemoteDisconnected is one of these
            self._connection.close()
            return None
        except TimeoutError:
            self._connection.close()
            return Outcome(Kind.FAILED, "timed out")
        except (OSError, HTTPException) as error:
            self._connection.close()
            return Outcome(Kind.FAILED, self._harmless(f"{type(error).__name__}: {error}"))
        kind = _kind(answer)
        if kind is Kind.ACCEPTED:
            return Outcome(kind)
        return Outcome(kind, self._harmless(f"{answer.status} {_told(text)}".rstrip()))

    def _cork(self, corked: bool) -> None:
        """Hold back what is sent, or let it go.

        The library sends head and body apart, and the controller would be woken for each.
        """
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, corked)

    def _harmless(self, message: str) -> str:
        """Make one line of it that a log can hold, whatever the other side sent."""
        line = "".join(c if c.isprintable() else " " for c in message)
        return line.replace(self._token, "[token]")[:_MOST_MESSAGE_CHARS]


def _connection(
    endpoint: Endpoint,
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    timeout_s: float,
) -> HTTPConnection:
    if not endpoint.secure:
        return HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)
    from dial.tls import client_context  # noqa: PLC0415 - only for https

    context = client_context(ca_file, cert_file, key_file)
    return HTTPSConnection(endpoint.host, endpoint.port, timeout=timeout_s, context=context)


def _kind(answer: HTTPResponse) -> Kind:
    status = answer.status
    if 200 <= status < 300:
        return Kind.ACCEPTED
    # A redirect is somebody else's answer: the address is wrong until it is changed.
    if status in (401, 403) or 300 <= status < 400:
        return Kind.DENIED
    # "Too slow" and "too many" are about the moment, not about these samples.
    if status in (408, 429) or status >= 500:
        return Kind.FAILED
    return Kind.REFUSED


def _told(body: bytes) -> str:
    """Return what the controller says: ``error.message`` of its JSON, else the first line."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text.partition("\n")[0]
