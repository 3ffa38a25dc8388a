"""The product's own processes: ``dial`` commands, and the controller with its HTTP service."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from .application import WITHIN_S, until

DIAL = Path(sys.executable).with_name("dial")
TOKEN = "the-token-of-this-test"
OPERATOR_TOKEN = "the-operators-token-of-this-test"
SAMPLES_EVERY_S = 0.15


def environment() -> dict[str, str]:
    """This process's, without settings of somebody's own; the API's port is a free one."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("DIAL_")}
    return mine | {"DIAL_API__PORT": "0", "NO_COLOR": "1", "COLUMNS": "200"}


async def run_dial(*arguments: str) -> tuple[int, str, str]:
    """Run a command that ends by itself; exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        DIAL,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


class Controller:
    """``dial controller --config FILE`` as a process, and its HTTP service."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.url = ""
        self._errors = config.with_suffix(".log")
        self._client: httpx.AsyncClient | None = None
        self._asked: set[asyncio.Task[httpx.Response]] = set()
        self.process: asyncio.subprocess.Process | None = None

    def log(self) -> str:
        """Its standard error so far."""
        return self._errors.read_text()

    async def start(self) -> None:
        """Returns when its service answers."""
        with self._errors.open("wb") as errors:
            self.process = await asyncio.create_subprocess_exec(
                DIAL, "controller", "--config", str(self.config), stderr=errors, env=environment()
            )

        async def port() -> re.Match[str] | None:
            assert self.process is not None
            assert self.process.returncode is None, self.log()
            return re.search(r"started .*\bport=(\d+)", self.log())

        found = await until(port, "the controller says its port")
        self.url = f"http://127.0.0.1:{found[1]}"
        before = self._client
        self._client = httpx.AsyncClient(base_url=self.url, trust_env=False)
        await self._close(before)

    async def stop(self) -> int | None:
        """SIGTERM, if it still runs; its exit code."""
        await self._close(self._client)
        if self.process is None:
            return None
        with suppress(ProcessLookupError):
            self.process.terminate()
        async with asyncio.timeout(WITHIN_S):
            return await self.process.wait()

    async def _ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Any request, remembered while it is on its way.

        A client that is closed while one of its requests connects leaves that socket open.
        """
        assert self._client is not None
        request = asyncio.create_task(self._client.request(method, path, **given))
        self._asked.add(request)
        request.add_done_callback(self._asked.discard)
        return await request

    async def _close(self, client: httpx.AsyncClient | None) -> None:
        """Close what there is, when nothing that was asked is on its way."""
        while self._asked:
            await asyncio.gather(*self._asked, return_exceptions=True)
        if client is not None:
            await client.aclose()

    async def get(self, path: str) -> httpx.Response:
        return await self._ask("GET", path)

    async def ready(self) -> bool:
        return (await self.get("/readyz")).status_code == 200

    async def state(self) -> dict[str, Any]:
        return dict((await self.get("/v1/state")).json())

    async def backend(self, name: str) -> dict[str, Any]:
        """One backend's row of the state; empty while there is none."""
        rows = (await self.state())["backends"]
        return next((dict(row) for row in rows if row["name"] == name), {})

    async def metric(self, name: str, **labels: str) -> float:
        text = (await self.get("/metrics")).text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        raise AssertionError(f"no metric {name} {labels}")

    async def ticks(self, more: int) -> None:
        """Wait until that many more ticks have passed."""
        last = await self.metric("dial_ticks_total") + more

        async def passed() -> bool:
            return await self.metric("dial_ticks_total") >= last

        await until(passed, f"{more} more ticks")

    async def post(self, body: bytes, token: str = TOKEN) -> httpx.Response:
        """Post as an agent does."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return await self._ask("POST", "/v1/samples", content=body, headers=headers)


def sample(backend: str, *, denied: bool, at_s: float | None = None, **metrics: float) -> bytes:
    """One sample; the CPU its VM wanted and did not get is nine tenths of a core, or none.

    The only signal, so that nothing but the word of the agent can be the cause of a shift.
    """
    used = {"cpu_usr_cores": 0.5, "cpu_sys_cores": 0.1, "throttled_fraction": 0.0}
    seen = used | {"run_queue_wait_cores": 0.9 if denied else 0.0} | metrics
    when_s = time.time() if at_s is None else at_s
    one = {"at_s": when_s, "interval_s": SAMPLES_EVERY_S, "metrics": seen}
    post = {"version": 1, "backend": backend, "agent": "vm:1", "samples": [one]}
    return json.dumps(post).encode()
