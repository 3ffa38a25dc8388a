"""What an HAProxy administrator adds, as text that docs, lab and ``check`` share.

One source for these lines, because a log format that differs by one comma from what the
parser reads fails silently: every line is then malformed.
"""

from __future__ import annotations

from dataclasses import dataclass

LOG_FORMAT = (
    "%b,%s,%[var(txn.dial_t0)],%[var(txn.dial_t1)],%TR,%Tc,%Tr,%Ta,%ST,%tsc,%sc,%rc,"
    "%[var(txn.dial_route)]"
)
"""The compact line that :class:`dial_haproxy.parser.LogParser` reads as format ``dial``."""

CLOCK = (
    "http-request set-var(txn.dial_t0) date(0,us)",
    "http-after-response set-var(txn.dial_t1) date(0,us)",
)
"""When a request came and when its answer began: HAProxy's own timers are whole milliseconds."""

RING_TARGET = "log ring@{name} format raw local0"

LOG_FORMAT_LINE = f'log-format "{LOG_FORMAT}"'

FRONTEND = "".join(
    f"    {statement}\n" for statement in (*CLOCK, RING_TARGET.format(name="dial"), LOG_FORMAT_LINE)
)
"""For each frontend whose requests reach the service."""

HTTPLOG = "    option httplog\n"
"""For each frontend, where the log is HAProxy's standard one."""

RING = """\
ring dial
    format raw
    maxlen 1200
    size 1048576
    timeout connect 5s
    timeout server 10s
    server dial {host}:{port} log-proto legacy
"""
"""A section of its own.  A full ring forgets its oldest lines; no request waits for it."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """Lines for ``haproxy.cfg``, by the section they belong to."""

    in_global: str
    section: str
    """A section of its own, the ring; empty where none is needed."""
    in_frontend: str

    def __str__(self) -> str:
        return f"global\n{self.in_global}\n{self.section}\nfrontend ...\n{self.in_frontend}"


def socket_line(path: str) -> str:
    """The line that opens the runtime socket, readable by HAProxy's group only."""
    return f"    stats socket {path} mode 660 level admin\n"


def snippet(
    socket: str = "/run/haproxy/dial.sock", log_host: str = "127.0.0.1", log_port: int = 5140
) -> Snippet:
    """Lines for format ``dial``: a raw stream over TCP out of a ring buffer.

    A full ring forgets its oldest lines; it never makes a request wait.

    Parameters
    ----------
    socket
        Path (or ``ipv4@host:port``) of the runtime socket.
    log_host, log_port
        Where the adapter listens (option ``log``).

    Examples
    --------
    >>> print(snippet(log_port=5141).section.splitlines()[-1].strip())
    server dial 127.0.0.1:5141 log-proto legacy
    """
    ring = RING.format(host=log_host, port=log_port)
    return Snippet(in_global=socket_line(socket), section=ring, in_frontend=FRONTEND)


def statements(lines: str) -> list[str]:
    """Lines without their indentation."""
    return [line.strip() for line in lines.splitlines()]
