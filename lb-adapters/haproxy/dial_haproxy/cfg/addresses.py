"""Addresses as haproxy.cfg writes them, in the terms of the adapter's options."""

from __future__ import annotations

import re
from typing import Literal

from dial_haproxy.options import Address

SYSLOG_PORT = 514

_FAMILY = re.compile(r"(?:stream\+|dgram\+)?(?:ipv[46]|(?:tcp|udp)[46]?)@")
_ANYWHERE = ("", "*", "0.0.0.0", "::")  # noqa: S104 - compared with, never bound
_HERE = {"localhost": "127.0.0.1"}


def stream_address(text: str, prefix: str = "") -> Address | None:
    """A place that is connected to: a ``stats socket``, or a ``server`` of a ring.

    ``prefix`` is what ``unix-bind prefix`` puts before paths.  ``None`` where the address is
    of another kind (``fd@``, ``abns@``) or cannot be read.
    """
    path = _path(text)
    if path is not None:
        return Address(scheme="unix", path=prefix + path)
    return _host_port("tcp", _FAMILY.sub("", text, count=1), None)


def log_address(text: str) -> Address | None:
    """A place that syslog datagrams, or lines over TCP (``tcp@``), are sent to."""
    path = _path(text)
    if path is not None:
        return Address(scheme="unixgram", path=path)
    scheme: Literal["tcp", "syslog"] = "tcp" if text.startswith("tcp") else "syslog"
    return _host_port(scheme, _FAMILY.sub("", text, count=1), SYSLOG_PORT)


def same(one: Address, other: Address) -> bool:
    """Whether both are one place; the unspecified address includes the loopback."""
    if (one.scheme, one.path, one.port) != (other.scheme, other.path, other.port):
        return False
    first, second = (_HERE.get(a.host, a.host) for a in (one, other))
    return first == second or first in _ANYWHERE or second in _ANYWHERE


def _path(text: str) -> str | None:
    path = text.removeprefix("unix@")
    return path if path.startswith("/") else None


def _host_port(
    scheme: Literal["tcp", "syslog"], text: str, default_port: int | None
) -> Address | None:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "" if default_port is None else str(default_port)
    if "@" in text or "$" in text or not re.fullmatch(r"\d{1,5}", port, re.ASCII):
        return None
    return Address(scheme=scheme, host=host.strip("[]"), port=int(port))
