"""A real Prometheus scrapes a real controller on a real HAProxy, as ``deploy/prometheus`` says.

Each query of the Grafana dashboard is asked there, so that none is a typing error; and the
neighbour that comes is an alert.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from .application import log_address, until
from .stack import Stack, start_stack

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dial.json").read_text())
SCRAPE_S = 0.5
READ_TOKEN = "the-readers-token-of-this-test"
VARIABLES = {"$__rate_interval": "5s", "$job": "dial", "$service": ".*", "$backend": ".*"}

MAY_BE_EMPTY = ("Load moved",)
"""Nothing to draw, where nothing has happened."""


def configuration(target: str, token: Path | None) -> str:
    """The one we ship, which scrapes ``target``, and sooner; with its lines for a token."""
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    assert '"127.0.0.1:9180"' in text
    text = text.replace("127.0.0.1:9180", target)
    if token is not None:
        given = "authorization: {credentials_file: /etc/prometheus/dial-token}"
        assert f"    # {given}\n" in text
        text = text.replace(f"# {given}", given).replace("/etc/prometheus/dial-token", str(token))
    return re.sub(r"(scrape|evaluation)_interval: \w+", rf"\1_interval: {SCRAPE_S * 1e3:g}ms", text)


class Prometheus:
    """The process, and what it answers."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def ready(self) -> bool:
        try:
            return (await self._client.get("/-/ready")).status_code == 200
        except httpx.TransportError:
            return False

    async def query(self, text: str) -> list[dict[str, Any]]:
        """The samples of an instant."""
        answer = (await self._client.get("/api/v1/query", params={"query": text})).json()
        assert answer["status"] == "success", f"{text}: {answer}"
        return list(answer["data"]["result"])

    async def alerts(self) -> dict[str, str]:
        """State by name and backend, of those that are more than inactive."""
        answer = (await self._client.get("/api/v1/alerts")).json()
        return {
            " ".join(filter(None, (a["labels"]["alertname"], a["labels"].get("backend")))): a[
                "state"
            ]
            for a in answer["data"]["alerts"]
        }


@asynccontextmanager
async def prometheus(
    directory: Path, target: str, token: Path | None = None
) -> AsyncIterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus program here: install Debian's")
    config = directory / "prometheus.yml"
    config.write_text(configuration(target, token))
    shutil.copy(DEPLOY / "prometheus" / "dial.rules.yml", directory)
    host, port = log_address()
    with (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={directory}/tsdb",
            f"--web.listen-address={host}:{port}",
            stderr=log,
        )
    server = Prometheus(f"http://{host}:{port}")
    try:
        await until(server.ready, "Prometheus is ready")
        yield server
    finally:
        await server.close()
        process.terminate()
        await process.wait()


def panels() -> list[tuple[str, str]]:
    """(title, query) of all that the dashboard asks."""
    asked = [
        (panel["title"], target["expr"])
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]
    asked += [(each["name"], each["expr"]) for each in DASHBOARD["annotations"]["list"]]
    for name, value in VARIABLES.items():
        asked = [(title, query.replace(name, value)) for title, query in asked]
    return asked


class Guarded(Stack):
    """Its controller shows nothing to those without a token."""

    def settings(self, **changes: str) -> str:
        path = self.directory / "read"
        path.touch(mode=0o600)
        path.write_text(READ_TOKEN)
        return (
            super().settings(**changes).replace("[api]\n", f'[api]\nread_token_file = "{path}"\n')
        )


async def test_a_controller_with_a_read_token_is_scraped_with_it_alone() -> None:
    async with start_stack(Guarded) as stack:
        target = stack.controller.url.removeprefix("http://")
        for token, seen in (stack.directory / "read", "1"), (None, "0"):
            directory = stack.directory / f"prometheus-{seen}"
            directory.mkdir()
            async with prometheus(directory, target, token) as server:

                async def scraped(server: Prometheus = server, seen: str = seen) -> bool:
                    found = await server.query("up")
                    return [each["value"][1] for each in found] == [seen]

                await until(scraped, f"up is {seen}")


async def test_prometheus_scrapes_it_and_every_query_of_the_dashboard_answers() -> None:
    async with start_stack() as stack:
        target = stack.controller.url.removeprefix("http://")
        async with prometheus(stack.directory, target) as server:
            await stack.learnt()

            async def scraped() -> bool:
                return bool(await server.query("rate(dial_ticks_total[5s]) > 0"))

            await until(scraped, "ticks counted")
            await _neighbour(stack, server)
            (up,) = await server.query('up{job="dial", service="app"}')
            assert up["value"][1] == "1"

            async def as_in_force() -> bool:
                weights = await server.query("dial_backend_weight")
                shown = {w["metric"]["backend"]: int(w["value"][1]) for w in weights}
                return shown == await stack.proxy.weights()

            await until(as_in_force, "the weights that HAProxy has")
            for title, query in panels():
                found = await server.query(query)
                assert "$" not in query
                assert found or title in MAY_BE_EMPTY, f"{title}: {query}: nothing"


async def _neighbour(stack: Stack, server: Prometheus) -> None:
    """One comes, and is an alert with the backend's name."""
    assert "DialNeighbour s1" not in await server.alerts()
    stack.neighbour("s1", there=True)

    async def alerted() -> bool:
        # Pending: the rule waits a minute before it tells anybody.
        return (await server.alerts()).get("DialNeighbour s1") == "pending"

    await until(alerted, "an alert on s1")
    (verdict,) = await server.query('dial_backend_verdict{backend="s1"}')
    assert verdict["metric"]["cause"] == "cpu"
