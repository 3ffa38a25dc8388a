"""Names on NATS: subjects that messages are published on, and keys of documents that are kept.

``dial.samples.SERVICE.BACKEND``
    An agent's samples, the body that it would post (docs/wire-formats.md).
``dial.windows.SERVICE.READER``
    What a reader beside a load balancer has seen in one interval.
``dial.applied.SERVICE.READER``
    What became of a plan at one load balancer.
``dial.ticks.SERVICE``
    What the leading controller has decided, for whoever wants to look on.

A name may hold any character; in a subject it is one token.  The standard library alone, because
agents import it.
"""

from __future__ import annotations

import re

SCHEMES = ("nats://", "tls://")
"""Of a server's address."""

_NOT_IN_A_TOKEN = re.compile(rb"[^A-Za-z0-9_-]")


def token(name: str) -> str:
    """A name as one token of a subject or key, as quoted-printable has it.

    Examples
    --------
    >>> token("web-1.example.org")
    'web-1=2Eexample=2Eorg'
    """
    return _NOT_IN_A_TOKEN.sub(lambda found: b"=%02X" % found[0][0], name.encode()).decode()


def samples(service: str, backend: str) -> str:
    """Where a backend's agent publishes."""
    return f"dial.samples.{token(service)}.{token(backend)}"


def all_samples(service: str) -> str:
    """All agents of a service."""
    return f"dial.samples.{token(service)}.*"


def windows(service: str, reader: str) -> str:
    """Where a reader publishes."""
    return f"dial.windows.{token(service)}.{token(reader)}"


def all_windows(service: str) -> str:
    """All readers of a service."""
    return f"dial.windows.{token(service)}.*"


def applied(service: str, reader: str) -> str:
    """Where a reader says what became of a plan."""
    return f"dial.applied.{token(service)}.{token(reader)}"


def all_applied(service: str) -> str:
    """All readers' answers to plans."""
    return f"dial.applied.{token(service)}.*"


def ticks(service: str) -> str:
    """Where the leader says what it has decided."""
    return f"dial.ticks.{token(service)}"
