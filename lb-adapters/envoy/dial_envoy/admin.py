"""What Envoy says of itself on its admin interface; read only.

``/clusters?format=json``
    Hosts with their weights in force, health and counters.
``/config_dump``
    The cluster's policy, and when this process read it: the start of the process, to the
    millisecond.  (``/server_info`` knows whole seconds, and is 120 kB.)
``/stats?format=json``
    Counters of the cluster, for ``check``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import httpx

from dial.errors import BalancerRefused, BalancerUnreachable, UnknownService
from dial_envoy.endpoints import HostPort
from dial_envoy.options import Address
from dial_envoy.policy import LbPolicy, policy_of

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""About 700 bytes a host: room for ninety thousand of them."""

MAX_COUNTER = 2**64 - 1

_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the cluster, as one Envoy has it."""

    weight: int
    """0 where it is drained (``health_status: DRAINING``)."""
    usable: bool
    in_flight: int
    requests_total: int
    errors_total: int


@dataclass(frozen=True, slots=True)
class View:
    """One Envoy's view of the cluster.

    Attributes
    ----------
    address
        Of the admin interface.
    started
        When this process read the cluster's configuration, as it writes it.
    policy
        How the cluster spreads requests.
    config
        The cluster as configured.
    hosts
        By address; none before Envoy has got endpoints.
    """

    address: Address
    started: str
    policy: LbPolicy
    hosts: Mapping[HostPort, Host] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


class AdminClient:
    """Talks to the admin interface of one Envoy.

    Parameters
    ----------
    address
        Where it is.
    timeout_s
        For one answer.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None

    async def view(self, cluster: str) -> View:
        """The cluster with its hosts, in two questions asked at once.

        Raises
        ------
        BalancerUnreachable
            If nobody answers.
        BalancerRefused
            If the answer is not Envoy's.
        UnknownService
            If it has no such cluster.
        """
        name = f"^{re.escape(cluster)}$"
        hosts, static = await asyncio.gather(
            self.get("/clusters", format="json", filter=name),
            self.get("/config_dump", resource="static_clusters", name_regex=name),
        )
        found = parse_config(static, cluster)
        if found is None:
            dynamic = await self.get(
                "/config_dump", resource="dynamic_active_clusters", name_regex=name
            )
            found = parse_config(dynamic, cluster)
        if found is None:
            raise UnknownService(
                f"service = {cluster!r}: the Envoy at {self.address} has no such cluster; "
                f"there are: {', '.join(await self.cluster_names()) or 'none'}"
            )
        config, started = found
        return View(self.address, started, policy_of(config), parse_hosts(hosts, cluster), config)

    async def cluster_names(self) -> tuple[str, ...]:
        """Names of all clusters."""
        answer = _json(await self.get("/clusters", format="json"), "/clusters")
        return tuple(sorted(str(one.get("name")) for one in _tables(answer, "cluster_statuses")))

    async def stats(self, *names: str) -> dict[str, int]:
        """Counters and gauges by name; those that there are."""
        pattern = "|".join(f"^{re.escape(name)}$" for name in names)
        answer = _json(await self.get("/stats", format="json", filter=pattern), "/stats")
        return {
            str(one["name"]): int(one["value"])
            for one in _tables(answer, "stats")
            if isinstance(one.get("value"), int) and "name" in one
        }

    async def get(self, path: str, **query: str) -> bytes:
        """The body of an answer.

        Raises
        ------
        BalancerUnreachable
            If nobody answers in time.
        BalancerRefused
            If the answer is no success, or endless.
        """
        client = self._client or self._connect()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                client.stream("GET", path, params=query or None) as answer,
            ):
                parts, size = [], 0
                async for part in answer.aiter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > MAX_ANSWER_BYTES:
                        raise BalancerRefused(
                            f"admin {self.address}: {path} answered more than "
                            f"{MAX_ANSWER_BYTES} bytes"
                        )
        except (httpx.HTTPError, TimeoutError, OSError) as error:
            await self.aclose()
            why = str(error) or f"no answer in {self._timeout_s:g} s"
            raise BalancerUnreachable(f"admin {self.address}: {why}") from error
        body = b"".join(parts)
        # "No entries" of a kind is 404 on /config_dump, and no trouble.
        if answer.status_code not in (200, 404):
            said = ascii(body[:_SHOWN].decode("utf-8", errors="replace"))
            raise BalancerRefused(
                f"admin {self.address}: {path} answered {answer.status_code} {said}"
            )
        return body if answer.status_code == 200 else b""

    def _connect(self) -> httpx.AsyncClient:
        by_path = self.address.is_path
        transport = httpx.AsyncHTTPTransport(uds=self.address.where if by_path else None)
        base = "http://envoy" if by_path else f"http://{self.address.where}"
        # trust_env: a proxy for the web is none for the admin interface.
        self._client = httpx.AsyncClient(
            transport=transport, base_url=base, timeout=self._timeout_s, trust_env=False
        )
        return self._client

    async def aclose(self) -> None:
        """Give the connection back; the next question opens another."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


# ---------------------------------------------------------------- parsing


def parse_hosts(body: bytes, cluster: str) -> dict[HostPort, Host]:
    """Read ``/clusters?format=json``; empty where the cluster has no hosts yet.

    Raises
    ------
    BalancerRefused
        If it is no such answer.
    """
    for status in _tables(_json(body, "/clusters"), "cluster_statuses"):
        if status.get("name") == cluster:
            try:
                return dict(map(_host, _tables(status, "host_statuses")))
            except (KeyError, TypeError, ValueError) as error:
                raise BalancerRefused(
                    f"/clusters: cannot read the hosts of {cluster!r}: {str(error)[:_SHOWN]!a}"
                ) from error
    return {}


def _host(status: Mapping[str, Any]) -> tuple[HostPort, Host]:
    socket = status["address"]["socket_address"]
    address = (str(ip_address(socket["address"])), _number(socket["port_value"], 65_535))
    counters = {
        str(one["name"]): _number(one.get("value", 0), MAX_COUNTER)
        for one in _tables(status, "stats")
    }
    health = dict(status.get("health_status", {}))
    eds = health.pop("eds_health_status", "HEALTHY")
    is_drained = eds == "DRAINING"
    # Whatever else is true there is a check that failed.
    is_failing = any(value is True for value in health.values())
    return address, Host(
        weight=0 if is_drained else _number(status.get("weight", 1), 2**32 - 1),
        usable=not is_failing and eds in ("HEALTHY", "UNKNOWN", "DRAINING"),
        in_flight=counters.get("rq_active", 0),
        requests_total=counters.get("rq_total", 0),
        errors_total=counters.get("rq_error", 0),
    )


def parse_config(body: bytes, cluster: str) -> tuple[Mapping[str, Any], str] | None:
    """Read ``/config_dump``: the cluster, and when it was read; ``None`` if it is not there.

    Raises
    ------
    BalancerRefused
        If it is no such answer.
    """
    if not body:
        return None
    for entry in _tables(_json(body, "/config_dump"), "configs"):
        found = entry.get("cluster")
        if isinstance(found, dict) and found.get("name") == cluster:
            return found, ascii(str(entry.get("last_updated", "?"))[:_SHOWN])[1:-1]
    return None


def _json(body: bytes, path: str) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        shown = ascii(body[:_SHOWN].decode("utf-8", errors="replace"))
        raise BalancerRefused(f"{path} answered {shown}: this is no Envoy") from error
    if not isinstance(found, dict):
        raise BalancerRefused(f"{path} answered no table: this is no Envoy")
    return found


def _tables(table: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found = table.get(key, ())
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _number(value: object, most: int) -> int:
    """A whole number: protobuf writes those of 64 bits as text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r}: a whole number is expected")  # noqa: TRY004 - one kind of error
    if isinstance(value, str) and len(value) > 20:
        raise ValueError(f"{value[:20]!r}...: a number of so many digits")
    number = int(value)
    if not 0 <= number <= most:
        raise ValueError(f"{number}: allowed are 0 to {most}")
    return number
