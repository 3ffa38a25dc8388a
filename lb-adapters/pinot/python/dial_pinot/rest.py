"""Pinot's own HTTP interfaces, as far as they are needed: the controller's and the brokers'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from dial.errors import BalancerRefused, BalancerUnreachable, UnknownService

_MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The view of a table with 100,000 segments on three servers each is some 15 MB."""


_START_TIME_S = 1.0
"""A broker answers this from memory."""


class PinotRest:
    """Asks Pinot; every error says whom was asked for what.

    Parameters
    ----------
    controller : address of Pinot's controller.
    timeout_s : for one answer.
    authorization : value of the header, where Pinot asks for one.
    """

    def __init__(self, controller: str, timeout_s: float, authorization: str | None = None) -> None:
        self._controller = controller
        self._timeout_s = timeout_s
        self._headers = {"Authorization": authorization} if authorization else {}
        self._client: httpx.AsyncClient | None = None

    async def aclose(self) -> None:
        """Give the client back; the next question makes another."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def view(self, table: str, kind: str) -> dict[str, dict[str, str]]:
        """Segment to server to state: ``kind`` is ``idealstate`` or ``externalview``.

        Raises
        ------
        UnknownService
            If there is no such table.
        """
        answer = await self._json(f"{self._controller}/tables/{table}/{kind}")
        part = answer.get(table.rpartition("_")[2])
        if part is None:
            raise UnknownService(f"Pinot at {self._controller} has no table {table!r}")
        if not isinstance(part, dict) or not all(isinstance(v, dict) for v in part.values()):
            raise BalancerRefused(f"{self._controller}: {kind} of {table!r} cannot be read")
        return part

    async def table_config(self, table: str) -> dict[str, Any]:
        """The table's configuration.

        Raises
        ------
        UnknownService
            If there is no such table.
        """
        answer = await self._json(f"{self._controller}/tables/{table}")
        config = answer.get(table.rpartition("_")[2])
        if not isinstance(config, dict):
            raise UnknownService(f"Pinot at {self._controller} has no table {table!r}")
        return config

    async def host(self, instance: str) -> str:
        """Host name of a server."""
        answer = await self._json(f"{self._controller}/instances/{instance}")
        host = answer.get("hostName")
        if not isinstance(host, str) or not host:
            raise BalancerRefused(f"{self._controller}: instance {instance!r} has no host name")
        return host

    async def start_time(self, broker: str) -> str:
        """When a broker started, as it says it, within a second: each tick waits for it."""
        timeout_s = min(self._timeout_s, _START_TIME_S)
        return (await self._ask("GET", f"{broker}/start-time", timeout_s=timeout_s)).text.strip()

    async def app_config(self, broker: str) -> dict[str, Any]:
        """A broker's own configuration and JVM arguments."""
        return await self._json(f"{broker}/appconfigs")

    async def node(self, path: str) -> dict[str, Any] | None:
        """A ZooKeeper node as a ZNRecord; ``None`` if it is not there."""
        answer = await self._ask("GET", f"{self._controller}/zk/get", {"path": path}, missing=True)
        if answer.status_code in (204, 404) or not answer.content:
            return None
        return _object(answer)

    async def set_node(self, path: str, record: Mapping[str, object]) -> None:
        """Set a ZooKeeper node; it is made, with its parents, where it is not there."""
        await self._ask(
            "PUT", f"{self._controller}/zk/put", {"path": path}, content=json.dumps(record)
        )

    async def _json(self, url: str) -> dict[str, Any]:
        return _object(await self._ask("GET", url))

    async def _ask(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None = None,
        *,
        content: str | None = None,
        missing: bool = False,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        headers = self._headers | ({"Content-Type": "application/json"} if content else {})
        try:
            if self._client is None:
                # A connection an exchange: one that outlives a restart of Pinot would fail later.
                self._client = httpx.AsyncClient(
                    timeout=self._timeout_s,
                    trust_env=False,
                    limits=httpx.Limits(max_keepalive_connections=0),
                )
            answer = await self._client.request(
                method,
                url,
                params=query,
                content=content,
                headers=headers,
                timeout=timeout_s or self._timeout_s,
            )
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise BalancerUnreachable(f"{method} {url}: {reason}") from error
        if len(answer.content) > _MAX_ANSWER_BYTES:
            raise BalancerRefused(f"{method} {url}: answered {len(answer.content)} bytes")
        if answer.status_code == 404 and not missing:
            raise UnknownService(f"{method} {url}: not found")
        if not answer.is_success and not (missing and answer.status_code == 404):
            raise BalancerRefused(f"{method} {url}: answered {answer.status_code}")
        return answer


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        value = answer.json()
    except ValueError as error:
        raise BalancerRefused(f"{answer.request.url}: answered no JSON") from error
    if not isinstance(value, dict):
        raise BalancerRefused(f"{answer.request.url}: answered no JSON object")
    return value
