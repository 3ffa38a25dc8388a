"""One post to the controller over a connection kept alive, and what its answer means.

``http.client`` and little more: it follows no redirect and knows no proxy, which here
are virtues (a redirect would carry the token elsewhere), and it is small.

An agent posts once a second, out of cold caches, in a machine that may have three milliseconds of
each ten; what it executes is what it costs.  So the request, which is always the same, is made
beforehand and sent in one piece, and of an answer that says yes in the ordinary way the library is
not asked.  Every other answer it reads.
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ssl import SSLSocket
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

    @property
    def authority(self) -> str:
        """What the header ``Host`` says: no port where it is the usual one (RFC 9110, 4.2.3)."""
        usual = 443 if self.secure else 80
        return self._bracketed if self.port == usual else f"{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{self._bracketed}:{self.port}{self.path}"


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
        self._head = (
            f"POST {endpoint.path} HTTP/1.1\r\nHost: {endpoint.authority}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            "Accept-Encoding: identity\r\nContent-Length: "
        ).encode("ascii")
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
        try:
            if self._connection.sock is None:
                self._connection.connect()
            connected = self._connection.sock
            connected.sendall(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
            if _says_yes(connected):
                return Outcome(Kind.ACCEPTED)
            answer = HTTPResponse(connected, method="POST")
            answer.begin()
            text = answer.read(_MOST_BODY_BYTES)
            if answer.will_close or not answer.isclosed():
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

    def _harmless(self, message: str) -> str:
        """Make one line of it that a log can hold, whatever the other side sent."""
        line = "".join(c if c.isprintable() else " " for c in message)
        return line.replace(self._token, "[token]")[:_MOST_MESSAGE_CHARS]


_YES = re.compile(rb"HTTP/1\.1 20[0-2] [^\r\n]*\r\n(?:[^\r\n]+\r\n)+\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,4})(?=\r\n)", re.IGNORECASE)
_OTHERWISE = re.compile(rb"\r\n(?:transfer-encoding|connection):", re.IGNORECASE)
"""A body of a length that is not told beforehand, or a connection that ends with it."""


def _says_yes(connected: socket.socket) -> bool:
    """Whether the answer is an ordinary yes, which is then taken; else all of it is left there.

    Raises
    ------
    OSError
        If none comes, or the connection breaks.
    """
    if isinstance(connected, SSLSocket):
        return False  # It cannot be looked at without being taken.
    seen = connected.recv(_MOST_BODY_BYTES, socket.MSG_PEEK)
    head = _YES.match(seen)
    if head is None or _OTHERWISE.search(head[0]) or len(found := _LENGTH.findall(head[0])) != 1:
        return False
    left = len(head[0]) + int(found[0])
    if len(seen) > left:
        return False  # What comes after it is no answer to anything.
    while left:
        taken = connected.recv(left)
        if not taken:
            raise ConnectionResetError("the answer was cut short")
        left -= len(taken)
    return True


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
