"""The adapter's options, checked when they are read and before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv6Address
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from dial.errors import SettingError

LogFormat = Literal["dial", "httplog"]
LatencyEnd = Literal["total", "first-byte"]

# The characters HAProxy allows in proxy and server names.  Anything else is refused here, for
# a ";" or a line break in a name would be a second command on the runtime socket.
NAME = re.compile(r"[A-Za-z0-9_.:-]+")

# Labels of 1 to 63 characters: looking up any other host is no OSError but a UnicodeError.
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_HOST_PORT = re.compile(rf"//(?:\[(.+)\]|({_LABEL}(?:\.{_LABEL})*\.?)):([0-9]{{1,5}})")


@dataclass(frozen=True, slots=True)
class Address:
    """A place to connect to, listen on, or read from."""

    scheme: Literal["unix", "tcp", "syslog", "unixgram", "file"]
    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return f"{self.scheme}:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True where nobody outside this computer can reach it."""
        return bool(self.path) or self.host in ("localhost", "::1") or self.host.startswith("127.")

    @classmethod
    def parse(cls, text: str, schemes: tuple[str, ...]) -> Self:
        """Read ``scheme:/path`` or ``scheme://host:port``.

        Raises
        ------
        ValueError
            If it is neither, or its scheme is not among ``schemes``.
        """
        scheme, _, rest = text.partition(":")
        match scheme:
            case ("unix" | "unixgram" | "file") as with_path if with_path in schemes:
                if re.fullmatch(r"/[^\0\n]*[^\0\n/]", rest) and not rest.startswith("//"):
                    return cls(scheme=with_path, path=rest)
            case ("tcp" | "syslog") as with_port if with_port in schemes:
                found = _HOST_PORT.fullmatch(rest)
                if found and 0 < int(found[3]) < 65_536:
                    host = found[2] or str(IPv6Address(found[1]))
                    return cls(scheme=with_port, host=host, port=int(found[3]))
        raise ValueError


class Options(BaseModel):
    """The ``[adapter.options]`` table of an HAProxy service."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    socket: Address = Field(
        description="Runtime socket: /path, unix:/path or tcp://127.0.0.1:9999."
    )
    log: Address = Field(
        description="Where the log comes from: tcp://host:port (we listen; a raw stream from a "
        "ring), syslog://host:port (we listen; UDP datagrams), unixgram:/path (we listen), or "
        "file:/path (followed)."
    )
    log_format: LogFormat | None = Field(
        default=None,
        description="dial (compact, microseconds) or httplog (HAProxy's own, milliseconds); dial "
        "when log is tcp, httplog else.",
    )
    new_connections: bool = Field(
        default=False,
        description="True where every request opens a new connection to its server (option "
        "httpclose): a connect time of 0 ms then means less than 1 ms.  Else it cannot be told "
        "from a reused connection, and counts as not measured.",
    )
    latency: LatencyEnd = Field(
        default="total",
        description="Where a response time ends: total (the answer's last byte, which shows a "
        "neighbour on the network) or first-byte (for large answers to slow clients, whose own "
        "slowness would be most of the total).",
    )
    sampled: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1,
        description="Requests that a line stands for: 10 where HAProxy logs one in ten (log ... "
        "sample 1:10 ...).  Counts are multiplied with it; a percentile still takes as many lines.",
    )
    timezone: str = Field(
        default="local",
        description="Time zone of the dates in an httplog: local, or a name such as UTC or "
        "Europe/Paris.",
    )
    compiled: bool = Field(
        default=False,
        description="True where more than a million lines a second are to be read: by compiled "
        "code, which needs numba (pip install 'dial-lb-haproxy[fast]'), a hundred MiB and some "
        "seconds at the first start.",
    )
    config_file: tuple[str, ...] = Field(
        default=(),
        description="HAProxy's own configuration, which check then reads: a path, or a list of "
        "files and directories in the order of HAProxy's -f.",
    )
    timeout_s: Annotated[float, Field(gt=0.0, le=60.0)] = Field(
        default=5.0, description="How long the runtime socket may take for one answer."
    )
    poll_s: Annotated[float, Field(gt=0.0, le=60.0)] = Field(
        default=0.2, description="How often a followed file is looked at."
    )
    check_wait_s: Annotated[float, Field(ge=0.0, le=60.0)] = Field(
        default=3.0, description="How long check waits for a log line."
    )
    max_queued_requests: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=200_000,
        description="Parsed requests kept for a slow reader; past it the oldest are dropped and "
        "counted.  At 40 bytes each the default is 8 MB.",
    )

    @field_validator("socket", mode="before")
    @classmethod
    def _socket(cls, value: object) -> object:
        allowed = "/path, unix:/path or tcp://host:port"
        if isinstance(value, str) and value.startswith("/"):
            value = f"unix:{value}"
        return _address(value, ("unix", "tcp"), allowed)

    @field_validator("log", mode="before")
    @classmethod
    def _log(cls, value: object) -> object:
        allowed = "tcp://host:port, syslog://host:port, unixgram:/path or file:/path"
        return _address(value, ("tcp", "syslog", "unixgram", "file"), allowed)

    @field_validator("config_file", mode="before")
    @classmethod
    def _config_file(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, value: str) -> str:
        if value != "local":
            try:
                ZoneInfo(value)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise ValueError("allowed are local and names of the tz database") from error
        return value

    @field_validator("compiled")
    @classmethod
    def _compiled(cls, value: bool) -> bool:
        if value and find_spec("numba") is None:
            raise ValueError("numba is not installed: pip install 'dial-lb-haproxy[fast]'")
        return value

    @property
    def format(self) -> LogFormat:
        """The log format in force, the default filled in."""
        return self.log_format or ("dial" if self.log.scheme == "tcp" else "httplog")

    @property
    def zone(self) -> ZoneInfo | None:
        """Zone of the log's dates; ``None`` is this computer's own."""
        return None if self.timezone == "local" else ZoneInfo(self.timezone)


def _address(value: object, schemes: tuple[str, ...], allowed: str) -> Address:
    if isinstance(value, Address):
        return value
    try:
        return Address.parse(value if isinstance(value, str) else "", schemes)
    except ValueError:
        raise ValueError(f"allowed are {allowed}") from None


def read_options(service: str, options: Mapping[str, object]) -> Options:
    """Check the service's name and the table of options.

    Raises
    ------
    SettingError
        Naming each option that is wrong, its value, and what is allowed.
    """
    if not NAME.fullmatch(service):
        raise SettingError(
            f"service = {service!r}: allowed are the characters of an HAProxy backend name "
            "(letters, digits, and _ . : -)"
        )
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        wrong = "; ".join(
            f"adapter.options.{_shown('.'.join(map(str, problem['loc'])))}"
            + ("" if problem["type"] == "missing" else f" = {problem['input']!r}")
            + f": {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_context=False)
        )
        known = ", ".join(Options.model_fields)
        if any(p["type"] == "extra_forbidden" for p in error.errors()):
            wrong += f" (options are: {known})"
        raise SettingError(wrong) from error


def _shown(name: str) -> str:
    """A name from a file, which may hold line breaks, on one line."""
    return name if name.isprintable() else repr(name)
