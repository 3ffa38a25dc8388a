"""The adapter's options, checked when they are read and before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dial.errors import SettingError
from dial_envoy.endpoints import Endpoint, parse_address

LatencyEnd = Literal["total", "first-byte"]

_LABEL = r"[A-Za-z0-9_-]{1,63}"
_HOST_PORT = re.compile(rf"(\[[0-9a-fA-F:.]+\]|{_LABEL}(?:\.{_LABEL})*):([0-9]{{1,5}})")


@dataclass(frozen=True, slots=True)
class Address:
    """A place to connect to, listen on, read from or write to."""

    scheme: Literal["http", "unix", "grpc", "file"]
    where: str
    """``host:port``, or a path."""

    def __str__(self) -> str:
        return f"{self.scheme}:{self.where}" if self.is_path else f"{self.scheme}://{self.where}"

    @property
    def is_path(self) -> bool:
        """True of files and unix sockets."""
        return self.scheme in ("unix", "file")

    @property
    def is_loopback(self) -> bool:
        """True where nobody outside this computer can reach it."""
        host = self.where.rpartition(":")[0]
        return self.is_path or host in ("localhost", "[::1]") or host.startswith("127.")

    @classmethod
    def parse(cls, text: str, *schemes: str) -> Self:
        """Read ``scheme:/path`` or ``scheme://host:port``.

        Raises
        ------
        ValueError
            If it is neither, or its scheme is not among ``schemes``.
        """
        scheme, _, rest = text.partition(":")
        match scheme:
            case ("unix" | "file") as with_path if with_path in schemes:
                if re.fullmatch(r"/[^\0\n]*[^\0\n/]", rest) and not rest.startswith("//"):
                    return cls(with_path, rest)
            case ("http" | "grpc") as with_port if with_port in schemes:
                host_port = rest.removeprefix("//").removesuffix("/")
                found = _HOST_PORT.fullmatch(host_port)
                if found and 0 < int(found[2]) < 65_536:
                    return cls(with_port, host_port)
        raise ValueError


class Options(BaseModel):
    """The ``[adapter.options]`` table of an Envoy service."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    admin: Annotated[tuple[Address, ...], Field(min_length=1)] = Field(
        description="Admin interface of each Envoy: http://127.0.0.1:9901 or unix:/path, one or a "
        "list.  Counters and the weights in force are read there; nothing is changed there."
    )
    xds: Address = Field(
        description="How endpoints reach Envoy: grpc://host:port (we listen) or file:/path (we "
        "write it, Envoy watches it)."
    )
    log: Address | Literal["grpc"] = Field(
        description="Where requests are logged: grpc (Envoy's access log service, on the port of "
        "xds) or file:/path (JSON lines, followed)."
    )
    endpoints: Mapping[str, Endpoint] = Field(
        default_factory=dict,
        description="The servers by name: 's1 = \"10.0.0.11:8080\"', or a table with address and "
        "weight (100 unless given).",
    )
    endpoints_file: Path | None = Field(
        default=None,
        description="Instead of endpoints: a ClusterLoadAssignment in JSON or YAML, as Envoy "
        "itself reads it.  It is watched.",
    )
    resource: str = Field(
        default="",
        description="Name that Envoy asks for, where eds_cluster_config has a service_name; the "
        "cluster's own else.",
    )
    nodes: tuple[str, ...] = Field(
        default=(),
        description="Node ids of the Envoys that are served; all, where empty.",
    )
    token_file: Path | None = Field(
        default=None,
        description="Holds the token that Envoy has to send as 'authorization: Bearer TOKEN'.",
    )
    tls_cert_file: Path | None = Field(
        default=None, description="Our certificate (PEM): xds then speaks TLS."
    )
    tls_key_file: Path | None = Field(default=None, description="Its key (PEM).")
    tls_client_ca_file: Path | None = Field(
        default=None,
        description="Authority (PEM) that must have signed Envoy's own certificate.",
    )
    latency: LatencyEnd = Field(
        default="total",
        description="Where a response time ends: total (the last byte from the server, which shows "
        "a neighbour on the network) or first-byte.",
    )
    timeout_s: Annotated[float, Field(gt=0.0, le=60.0)] = Field(
        default=5.0,
        description="How long Envoy may take for one answer, or to put weights in force.",
    )
    heartbeat_s: Annotated[float, Field(ge=1.0, le=3600.0)] = Field(
        default=10.0,
        description="How often what is in force is sent again, so that both sides see that the "
        "other one works.",
    )
    poll_s: Annotated[float, Field(gt=0.0, le=60.0)] = Field(
        default=0.2, description="How often a followed log file is looked at."
    )
    check_wait_s: Annotated[float, Field(ge=0.0, le=60.0)] = Field(
        default=3.0, description="How long check waits for a log line."
    )
    max_queued_requests: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=200_000,
        description="Requests kept for a slow reader; past it the oldest are dropped and counted.",
    )

    @field_validator("admin", mode="before")
    @classmethod
    def _admin(cls, value: object) -> object:
        several = value if isinstance(value, list | tuple) else [value]
        return tuple(
            _address(one, ("http", "unix"), "http://host:port or unix:/path, one or a list")
            for one in several
        )

    @field_validator("xds", mode="before")
    @classmethod
    def _xds(cls, value: object) -> object:
        return _address(value, ("grpc", "file"), "grpc://host:port or file:/path")

    @field_validator("log", mode="before")
    @classmethod
    def _log(cls, value: object) -> object:
        return value if value == "grpc" else _address(value, ("file",), "grpc or file:/path")

    @field_validator("endpoints", mode="before")
    @classmethod
    def _endpoints(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError("allowed is a table of names and addresses")  # noqa: TRY004 - pydantic's way
        return {
            name: {"address": one} if isinstance(one, str) else one for name, one in value.items()
        }

    @field_validator("endpoints")
    @classmethod
    def _distinct(cls, value: Mapping[str, Endpoint]) -> Mapping[str, Endpoint]:
        if len({parse_address(one.address) for one in value.values()}) < len(value):
            raise ValueError("two names have one address")
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        if bool(self.endpoints) == (self.endpoints_file is not None):
            raise ValueError("give endpoints or endpoints_file, one of them")
        if self.log == "grpc" and self.xds.scheme != "grpc":
            raise ValueError("log = 'grpc' needs xds = 'grpc://host:port', whose port it shares")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file go together")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_client_ca_file needs tls_cert_file and tls_key_file")
        secured = self.token_file or self.tls_cert_file
        if self.xds.scheme == "file" and (secured or self.nodes):
            raise ValueError("nodes, token_file and tls_* are for xds = 'grpc://...'")
        return self


def _address(value: object, schemes: tuple[str, ...], allowed: str) -> Address:
    if isinstance(value, Address):
        return value
    try:
        return Address.parse(value if isinstance(value, str) else "", *schemes)
    except ValueError:
        raise ValueError(f"allowed are {allowed}") from None


def read_options(service: str, options: Mapping[str, object]) -> Options:
    """Check the service's name and the table of options.

    Raises
    ------
    SettingError
        Naming each option that is wrong, its value, and what is allowed.
    """
    if not service.isprintable() or not service:
        raise SettingError(f"service = {service!r}: allowed are names of Envoy clusters")
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        wrong = "; ".join(
            _shown(".".join(("adapter.options", *map(str, problem["loc"]))))
            + (f" = {problem['input']!r}" if _has_value(problem) else "")
            + f": {problem['msg'].removeprefix('Value error, ')}"
            for problem in problems
        )
        if any(problem["type"] == "extra_forbidden" for problem in problems):
            wrong += f" (options are: {', '.join(Options.model_fields)})"
        raise SettingError(wrong) from error


def _has_value(problem: Mapping[str, object]) -> bool:
    """Whether to show it; the whole table, which may be long, is not."""
    return problem["type"] != "missing" and bool(problem["loc"])


def _shown(name: str) -> str:
    """A name from a file, which may hold line breaks, on one line."""
    return name if name.isprintable() else repr(name)
