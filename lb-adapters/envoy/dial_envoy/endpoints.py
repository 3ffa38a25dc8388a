"""Which servers there are: from the options, or from a file as Envoy itself reads it.

A :class:`Pool` is immutable.  It keeps the administrator's message whole and fills in weights
only, so that localities, priorities, metadata and health statuses stay as he wrote them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import yaml
from envoy.config.core.v3.health_check_pb2 import DRAINING, HEALTHY, UNKNOWN
from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from google.protobuf.json_format import ParseDict, ParseError
from pydantic import BaseModel, ConfigDict, Field, field_validator

from dial.errors import SettingError

MIN_WEIGHT = 1
"""Envoy refuses a whole assignment in which a weight is 0."""

MAX_WEIGHT = 100_000
"""Envoy adds the weights of a locality up in 32 bits: room for 42,949 servers of this weight."""

DEFAULT_WEIGHT = 100

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of a file of endpoints: some hundred bytes each, so tens of thousands."""

METADATA, SERVER_KEY = "dial", "server"
"""Where a server's name in the options stands in its endpoint's metadata, for whoever logs it:
``%UPSTREAM_METADATA(dial:server)%``."""

HostPort = tuple[str, int]
"""An address as Envoy's admin interface and its logs show it."""


class Endpoint(BaseModel):
    """One server in the options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str
    weight: Annotated[int, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)] = DEFAULT_WEIGHT

    @field_validator("address")
    @classmethod
    def _address(cls, value: str) -> str:
        parse_address(value)
        return value


def parse_address(text: str) -> HostPort:
    """Read ``10.0.0.1:80`` or ``[::1]:80``.

    Raises
    ------
    ValueError
        If it is neither: endpoint discovery knows no host names.

    Examples
    --------
    >>> parse_address("[::1]:80")
    ('::1', 80)
    """
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65_536
    try:
        found = str(ip_address(bare))
    except ValueError:
        found = ""
    if not (found and is_port) or (":" in bare) != (bare != host):
        raise ValueError(f"{text!r}: allowed are IP:PORT and [IPv6]:PORT")
    return found, int(port)


@dataclass(frozen=True, slots=True)
class Server:
    """One server of the pool."""

    name: str
    address: HostPort
    configured_weight: int
    usable: bool
    """Not taken out by the administrator (``health_status``)."""


@dataclass(frozen=True)
class Pool:
    """The servers of one cluster.

    Attributes
    ----------
    template
        The administrator's message; weights are filled in on copies of it.
    servers
        Those of the highest priority, in its order: the ones that get load.
    """

    template: ClusterLoadAssignment
    servers: tuple[Server, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Server]:
        """Servers by their names."""
        return {server.name: server for server in self.servers}

    @cached_property
    def by_address(self) -> Mapping[HostPort, Server]:
        """Servers by their addresses."""
        return {server.address: server for server in self.servers}

    @property
    def configured(self) -> dict[str, int]:
        """The administrator's weights by name."""
        return {server.name: server.configured_weight for server in self.servers}

    @property
    def can_drain(self) -> bool:
        """Whether a server can be taken out without moving load between groups of servers.

        One that is drained counts as unhealthy, and Envoy sends part of a locality's or
        priority's load elsewhere when fewer of its servers are healthy.
        """
        return len(self.template.endpoints) <= 1

    def assignment(self, weights: Mapping[str, int]) -> ClusterLoadAssignment:
        """The message with these weights: 0 is a drained server."""
        made = ClusterLoadAssignment()
        made.CopyFrom(self.template)
        for member in _first_priority(made):
            weight = weights[self.by_address[_address_of(member)].name]
            member.load_balancing_weight.value = max(weight, MIN_WEIGHT)
            if weight == 0:
                member.health_status = DRAINING
        return made


def pool_of_options(resource: str, endpoints: Mapping[str, Endpoint]) -> Pool:
    """From the options' table."""
    message = ClusterLoadAssignment(cluster_name=resource)
    locality = message.endpoints.add()
    for name, endpoint in endpoints.items():
        host, port = parse_address(endpoint.address)
        member = locality.lb_endpoints.add()
        # Not as hostname: a route with auto_host_rewrite would send it as the request's host.
        member.metadata.filter_metadata[METADATA].update({SERVER_KEY: name})
        member.endpoint.address.socket_address.address = host
        member.endpoint.address.socket_address.port_value = port
        member.load_balancing_weight.value = endpoint.weight
    servers = tuple(
        Server(name, parse_address(endpoint.address), endpoint.weight, usable=True)
        for name, endpoint in endpoints.items()
    )
    return Pool(message, servers)


def pool_of_file(path: Path, resource: str) -> Pool:
    """From a file: a ClusterLoadAssignment, or a DiscoveryResponse that holds one.

    Raises
    ------
    SettingError
        If it cannot be read, is neither, or has servers that cannot be told apart; the message
        names the file.
    """
    try:
        with path.open("rb") as file:
            return parse_pool(file.read(MAX_FILE_BYTES + 1), resource)
    except OSError as error:
        raise SettingError(f"endpoints_file {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingError(f"endpoints_file {path}: {error}") from error


def parse_pool(text: bytes, resource: str) -> Pool:
    """Read a ClusterLoadAssignment in JSON or YAML (see :func:`pool_of_file`).

    Raises
    ------
    ValueError
        Saying what is wrong, on one line.
    """
    if len(text) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    message = ClusterLoadAssignment()
    try:
        document = _chosen(load_document(text), resource)
        ParseDict(document, message, max_recursion_depth=50)
    except (ParseError, RecursionError) as error:
        said = " ".join(str(error).split()) or "nested too deep"
        raise ValueError(f"not a ClusterLoadAssignment: {ascii(said[:200])[1:-1]}") from error
    if message.cluster_name != resource:
        raise ValueError(f"cluster_name {message.cluster_name!r}: expected is {resource!r}")
    return Pool(message, _servers(message))


def load_document(text: bytes) -> object:
    """JSON, or else YAML.

    Raises
    ------
    ValueError
        If it is neither.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise ValueError(f"neither JSON nor YAML{where}") from error


def _chosen(document: object, resource: str) -> dict[str, object]:
    """The assignment itself; of several in a DiscoveryResponse the one that is meant."""
    if isinstance(document, dict) and "resources" in document:
        found = document["resources"]
        several = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        names = [one.get("cluster_name", one.get("clusterName")) for one in several]
        if resource not in names:
            raise ValueError(f"it holds no resource with cluster_name {resource!r}")
        document = several[names.index(resource)]
    if not isinstance(document, dict):
        raise ValueError("not a ClusterLoadAssignment: a table is expected")  # noqa: TRY004 - one kind of error
    return {key: value for key, value in document.items() if key != "@type"}


def _servers(message: ClusterLoadAssignment) -> tuple[Server, ...]:
    """Take the servers out.

    Raises
    ------
    ValueError
        If two share a name or an address, or a weight is out of range.
    """
    servers = []
    for member in _first_priority(message):
        address = _address_of(member)
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        name = member.endpoint.hostname or f"{host}:{address[1]}"
        weight = member.load_balancing_weight.value if member.HasField(_WEIGHT) else MIN_WEIGHT
        if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
            raise ValueError(
                f"load_balancing_weight of {name!r} = {weight}: allowed are {MIN_WEIGHT} to "
                f"{MAX_WEIGHT}"
            )
        usable = member.health_status in (UNKNOWN, HEALTHY)
        servers.append(Server(name, address, weight, usable))
    spare = (member for locality in message.endpoints for member in locality.lb_endpoints)
    if any(one.HasField(_WEIGHT) and not one.load_balancing_weight.value for one in spare):
        raise ValueError("load_balancing_weight 0: Envoy refuses all endpoints for it")
    if not servers:
        raise ValueError("it names no server")
    for what in ("name", "address"):
        ((most, times),) = Counter(getattr(server, what) for server in servers).most_common(1)
        if times > 1:
            raise ValueError(f"two servers have the {what} {most!r}")
    return tuple(servers)


_WEIGHT = "load_balancing_weight"


def _first_priority(message: ClusterLoadAssignment) -> Iterator[LbEndpoint]:
    """Members that get load while all is well."""
    first = min((locality.priority for locality in message.endpoints), default=0)
    for locality in message.endpoints:
        if locality.priority == first:
            yield from locality.lb_endpoints


def _address_of(member: LbEndpoint) -> HostPort:
    socket = member.endpoint.address.socket_address
    try:
        return str(ip_address(socket.address)), int(socket.port_value)
    except ValueError:
        raise ValueError(
            f"address {socket.address!r} of {member.endpoint.hostname!r}: allowed are IP addresses"
        ) from None
