"""schemathesis against the real application over real HTTP: what OpenAPI promises is kept.

Each operation gets the examples, the corner cases and a bounded number of random requests, valid
and not, and sequences of them; every check that schemathesis has is made.  The live stream, which
never ends, has tests of its own.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from dial.controller.snapshot import Publisher, Snapshot
from dial.service.app import create_app
from dial.service.parts import Parts
from dial.service.server import serve
from dial.settings import ApiSettings
from dial.types import BalancerState

PROGRAM = Path(sys.executable).with_name("schemathesis")
CONFIG = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = 20
WITHIN_S = 150.0


@pytest.fixture
def busy(parts: Parts, publisher: Publisher, after: Snapshot) -> Parts:
    """A controller that has ticked, and has ended, so that no follower of the weights waits."""
    assert after.observation is not None
    publisher.publish(after)
    publisher.end()
    servers = tuple(b.server for b in after.observation.backends)
    parts.orders.set_pool(BalancerState("1", "roundrobin", after.observation.meaning, servers))
    api = parts.settings.api.model_copy(update={"rate_per_s": 0.0})
    return replace(
        parts,
        settings=parts.settings.model_copy(update={"api": api}),
        tokens=replace(parts.tokens, read=SecretStr("the-readers-token")),
    )


async def test_schemathesis_finds_nothing(busy: Parts, tmp_path: Path) -> None:
    async with serve(create_app(busy), ApiSettings(port=0)) as port:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *("--config-file", CONFIG, "run", f"http://127.0.0.1:{port}/openapi.json"),
            *("--header", "Authorization: Bearer the-operators-own-token"),
            *("--checks", "all", "--max-examples", str(EXAMPLES), "--seed", "8"),
            *("--exclude-path", "/v1/stream", "--request-timeout", "10"),
            *("--no-color", "--generation-database", "none"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(WITHIN_S):
                said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, said.decode()
