"""The file that Envoy watches: who can read it, who else writes it, and what is left alone."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import asynccontextmanager

import pytest

import dial_envoy
from dial.errors import BalancerRefused
from dial.ports import free_port
from dial_envoy.eds_file import EdsFile
from dial_envoy.endpoints import Endpoint, parse_pool, pool_of_options
from dial_envoy.snapshot import Snapshot
from dial_envoy.testing import FakeEnvoy

NAMES = ("s1", "s2", "s3")
SERVERS = {name: f"10.0.0.{i}:80" for i, name in enumerate(NAMES, start=1)}
CONFIGURED = dict.fromkeys(NAMES, 100)


class FileEnvoy(FakeEnvoy):
    """Reads its endpoints from the file whenever it is asked, as if it had watched it."""

    path = None

    async def start(self) -> None:
        await super().start()
        await self.disconnect()

    def _answers(self) -> dict[str, object]:
        if self.path.exists():
            pool = parse_pool(self.path.read_bytes(), self.service)
            wrong = self.refuse or self._take(pool.template.SerializeToString())
            assert not wrong or self.refuse
        return super()._answers()


def options_of(path, fake, **options) -> dict[str, object]:
    return {
        "admin": f"http://127.0.0.1:{fake.admin_port}",
        "xds": f"file:{path}",
        "log": f"file:{path.parent / 'access.json'}",
        "endpoints": SERVERS,
        "timeout_s": 0.5,
        **options,
    }


@asynccontextmanager
async def running(directory, **options):
    """An Envoy, and the adapter of its file."""
    fake = FileEnvoy(f"127.0.0.1:{free_port()}")
    fake.path = directory / "eds.json"
    await fake.start()
    adapter = dial_envoy.create("app", options_of(fake.path, fake, **options))
    try:
        yield fake, adapter
    finally:
        await adapter.aclose()
        await fake.stop()


async def weights(adapter) -> dict[str, int]:
    return {s.name: s.weight for s in (await adapter.read()).servers}


def assignment(weights: Mapping[str, int]) -> dict[str, object]:
    """As an administrator writes it."""
    members = [
        {
            "endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}},
            "load_balancing_weight": weights[name],
        }
        for name, (host, _, port) in ((n, a.rpartition(":")) for n, a in SERVERS.items())
    ]
    return {"cluster_name": "app", "endpoints": [{"lb_endpoints": members}]}


def by_hand(path, document: dict[str, object]) -> None:
    beside = path.with_name("by-hand")
    resource = {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"}
    beside.write_text(json.dumps({"resources": [resource | document]}))
    beside.replace(path)


def test_others_can_read_the_file_whatever_the_umask(tmp_path):
    pool = pool_of_options("app", {"s1": Endpoint(address="10.0.0.1:80")})
    before = os.umask(0o077)
    try:
        EdsFile(tmp_path / "eds.json").publish(Snapshot.of(pool, {}))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "eds.json").stat().st_mode) == 0o644


async def test_weights_that_somebody_else_replaced_are_written_again(tmp_path):
    async with running(tmp_path) as (fake, adapter):
        assert (await adapter.apply({"s1": 7}, version=1)).ok
        by_hand(fake.path, assignment(CONFIGURED))
        assert await weights(adapter) == CONFIGURED
        # The same snapshot as was written last.
        assert (await adapter.apply({"s1": 7}, version=2)).ok
        assert await weights(adapter) == CONFIGURED | {"s1": 7}


async def test_reading_leaves_a_file_of_the_administrators_alone(tmp_path):
    async with running(tmp_path) as (fake, adapter):
        by_hand(fake.path, assignment({"s1": 1, "s2": 1, "s3": 1}))
        before = fake.path.read_bytes()
        state = await adapter.read()
        assert [s.weight for s in state.servers] == [1, 1, 1]
        assert not state.meaning.sole_writer
        assert fake.path.read_bytes() == before
        assert (await adapter.apply({"s1": 7}, version=1)).ok
        assert await weights(adapter) == {"s1": 7, "s2": 1, "s3": 1}


async def test_a_file_that_says_more_than_the_options_is_not_replaced(tmp_path):
    async with running(tmp_path) as (fake, adapter):
        document = assignment(CONFIGURED)
        document["endpoints"][0]["locality"] = {"zone": "one"}
        by_hand(fake.path, document)
        before = fake.path.read_bytes()
        with pytest.raises(BalancerRefused, match="written by somebody else"):
            await adapter.apply({"s1": 7}, version=1)
        assert fake.path.read_bytes() == before


async def test_a_file_that_is_deleted_in_the_middle_of_a_shift_comes_back_with_it(tmp_path):
    async with running(tmp_path) as (fake, adapter):
        await adapter.apply({"s1": 7}, version=1)
        fake.path.unlink()
        await adapter.read()
        assert await weights(adapter) == CONFIGURED | {"s1": 7}
        assert fake.path.exists()


async def test_a_file_that_was_deleted_while_the_controller_was_away_comes_back_with_the_shift(
    tmp_path,
):
    async with running(tmp_path) as (fake, adapter):
        await adapter.apply({"s1": 7}, version=1)
        await adapter.aclose()
        fake.path.unlink()
        assert await weights(adapter) == CONFIGURED | {"s1": 7}


async def test_a_configured_weight_that_was_changed_while_the_controller_was_away_counts(tmp_path):
    async with running(tmp_path) as (fake, adapter):
        await adapter.read()
        changed = dict(SERVERS) | {"s2": {"address": SERVERS["s2"], "weight": 50}}
        again = dial_envoy.create("app", options_of(fake.path, fake, endpoints=changed))
        try:
            await again.read()
            assert await weights(again) == CONFIGURED | {"s2": 50}
        finally:
            await again.aclose()


async def test_a_shift_outlives_the_controller(tmp_path):
    async with running(tmp_path) as (fake, adapter):
        await adapter.apply({"s1": 7}, version=1)
        again = dial_envoy.create("app", options_of(fake.path, fake))
        try:
            assert await weights(again) == CONFIGURED | {"s1": 7}
        finally:
            await again.aclose()


async def test_an_endpoints_file_that_does_not_come_into_force_is_taken_back(tmp_path):
    path = tmp_path / "endpoints.json"
    path.write_text(json.dumps(assignment(CONFIGURED)))
    async with running(tmp_path, endpoints={}, endpoints_file=str(path)) as (fake, adapter):
        await adapter.read()
        before = fake.path.read_bytes()
        fake.refuse = "no"
        path.write_text(json.dumps(assignment(CONFIGURED | {"s2": 55})))
        await adapter.read()
        assert adapter.events["endpoints_file_refused"] == 1
        assert fake.path.read_bytes() == before


async def test_a_log_that_cannot_be_opened_is_a_finding(tmp_path):
    (tmp_path / "access.json").mkdir()
    async with running(tmp_path) as (_, adapter):
        await adapter.read()
        said = [finding.what for finding in await adapter.check()]
        assert any("access.json: cannot be opened: Is a directory" in what for what in said)
