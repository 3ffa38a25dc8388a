"""The adapter's options, checked when they are read and before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from dial.errors import SettingError

TABLE = re.compile(r"[A-Za-z0-9_.-]+_(?:OFFLINE|REALTIME)")
"""A table with its type.  It becomes part of a URL, so nothing else is let through."""

_FEED = "feed"
_PATH = re.compile(r"/[^\0\n?#]*[^\0\n/?#]")


class Options(BaseModel):
    """The ``[adapter.options]`` table of a Pinot service."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pinot: str = Field(description="Pinot's controller: http://host:9000.")
    brokers: tuple[str, ...] = Field(
        min_length=1, description="Each broker: http://host:8099, as a list."
    )
    weights: str = Field(
        default=_FEED,
        description="Where brokers find their weights: feed (GET /v1/weights of DIAL), "
        "file:/path, or zookeeper:/CLUSTER/PROPERTYSTORE/DIAL/weights (written through Pinot's "
        "controller).",
    )
    log: str = Field(
        description="Where the query log comes from: http://127.0.0.1:9181 (we listen; the plugin "
        "posts it), or file:/path/querylog.log (followed; the appender must flush at once)."
    )
    token_file: Path | None = Field(
        default=None,
        description="File with the token that posts of the query log need; required where log "
        "listens on another address than loopback.",
    )
    authorization_file: Path | None = Field(
        default=None,
        description="File with the value of the Authorization header that Pinot asks for, such as "
        "'Basic ...'.",
    )
    timezone: str = Field(
        default="local", description="Time zone of the dates in a followed file, such as UTC."
    )
    valid_s: Annotated[float, Field(ge=3.0, le=3_600.0)] = Field(
        default=30.0,
        description="How long brokers keep weights of a file or of ZooKeeper without hearing more; "
        "they are renewed every third of it.  The feed's hold as long as the lease.",
    )
    refresh_s: Annotated[float, Field(ge=0.0, le=3_600.0)] = Field(
        default=5.0, description="How often Pinot is asked where the table's segments are."
    )
    timeout_s: Annotated[float, Field(gt=0.0, le=60.0)] = Field(
        default=5.0, description="How long Pinot may take for one answer."
    )
    poll_s: Annotated[float, Field(gt=0.0, le=60.0)] = Field(
        default=0.2, description="How often a followed file is looked at."
    )
    check_wait_s: Annotated[float, Field(ge=0.0, le=60.0)] = Field(
        default=3.0, description="How long check waits for a line of the query log."
    )
    max_queued_requests: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=200_000,
        description="Parsed requests kept for a slow reader; past it the oldest are dropped and "
        "counted.",
    )

    @field_validator("brokers", mode="before")
    @classmethod
    def _one_broker(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("pinot", "brokers")
    @classmethod
    def _addresses(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(value, str):
            return _http(value)
        return tuple(_http(one) for one in value)

    @field_validator("weights")
    @classmethod
    def _weights(cls, value: str) -> str:
        scheme, _, path = value.partition(":")
        if value == _FEED or (scheme in ("file", "zookeeper") and _PATH.fullmatch(path)):
            return value
        raise ValueError("allowed are feed, file:/path and zookeeper:/path")

    @field_validator("log")
    @classmethod
    def _log(cls, value: str) -> str:
        scheme, _, path = value.partition(":")
        if scheme == "file" and _PATH.fullmatch(path):
            return value
        try:
            return _http(value, "http")
        except ValueError:
            raise ValueError("allowed are http://host:port and file:/path") from None

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, value: str) -> str:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - slow to import

        if value != "local":
            try:
                ZoneInfo(value)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise ValueError("allowed are local and names of the tz database") from error
        return value

    @property
    def log_file(self) -> Path | None:
        """The followed file, if that is where the log comes from."""
        return Path(self.log.removeprefix("file:")) if self.log.startswith("file:") else None

    @property
    def listen(self) -> tuple[str, int]:
        """Host and port that the query log is posted to."""
        parts = urlsplit(self.log)
        return parts.hostname or "", parts.port or 80


def _http(text: str, *schemes: str) -> str:
    allowed = schemes or ("http", "https")
    try:
        parts: SplitResult = urlsplit(text)
        right = (
            parts.scheme in allowed
            and bool(parts.hostname)
            and parts.port != 0
            and parts.path in ("", "/")
            and not (parts.query or parts.fragment or parts.username)
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        right = False
    if not right:
        raise ValueError(f"must be {' or '.join(allowed)}://host:port")
    return text.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_secret(path: Path, option: str) -> str:
    """The one line of a file.

    Raises
    ------
    SettingError
        If it cannot be read, or is no line of printable ASCII.
    """
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise SettingError(f"adapter.options.{option} = '{path}': {reason}") from error
    if not (text and text.isprintable()):
        raise SettingError(f"adapter.options.{option} = '{path}': must hold one printable line")
    return text


def read_options(service: str, options: Mapping[str, object]) -> Options:
    """Check the service's name and the table of options.

    Raises
    ------
    SettingError
        Naming each option that is wrong, its value, and what is allowed.
    """
    if not TABLE.fullmatch(service):
        raise SettingError(
            f"service = {service!r}: must be a Pinot table with its type, as events_OFFLINE"
        )
    try:
        read = Options.model_validate(dict(options))
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
    if read.log_file is None and read.token_file is None and not is_loopback(read.listen[0]):
        raise SettingError(
            f"adapter.options.log = {read.log!r}: without token_file only loopback is allowed"
        )
    return read


def _shown(name: str) -> str:
    """A name from a file, which may hold line breaks, on one line."""
    return name if name.isprintable() else repr(name)
