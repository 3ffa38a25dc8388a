"""The agent's own client, which knows four lines of NATS's protocol, and a real server."""

from __future__ import annotations

import asyncio

import pytest

from dial import subjects
from dial.agent.client import Kind
from dial.agent.nats import NatsClient, Server, parse_server
from dial.errors import SettingError

from .conftest import until


def server_of(url: str) -> Server:
    return parse_server(f"{url}/app")


async def test_what_an_agent_publishes_arrives(nats_url, open_link):
    link, came = await open_link(), []
    await link.subscribe(subjects.all_samples("app"), came.append)
    await link.client.flush()
    client = NatsClient(server_of(nats_url), subjects.samples("app", "s.1"), "vm:1", "-")
    for body in (b"one", b"two"):
        outcome = await asyncio.to_thread(client.post, body)
        assert outcome.kind is Kind.ACCEPTED
    await until(lambda: came == [b"one", b"two"], "both bodies")
    client.close()


async def test_a_body_that_is_too_large_is_refused_and_the_next_one_is_not(nats_url):
    client = NatsClient(server_of(nats_url), "dial.samples.app.s1", "vm:1", "-")
    assert (await asyncio.to_thread(client.post, b"x")).kind is Kind.ACCEPTED
    assert (await asyncio.to_thread(client.post, b"x" * 2_000_000)).kind is Kind.REFUSED
    assert (await asyncio.to_thread(client.post, b"x")).kind is Kind.ACCEPTED
    client.close()


def test_a_server_that_is_away_is_a_failure_that_passes():
    client = NatsClient(Server(False, "127.0.0.1", 9, "app"), "dial.samples.app.s1", "vm:1", "-")
    assert client.post(b"x").kind is Kind.FAILED


def test_an_address_is_read():
    assert parse_server("nats://10.0.0.5/app") == Server(False, "10.0.0.5", 4222, "app")
    assert parse_server("tls://n:4443/app%2Eb") == Server(True, "n", 4443, "app.b")


@pytest.mark.parametrize("url", ["nats://", "nats://host", "nats://u:p@host/app", "nats://h:x/a"])
def test_an_address_without_host_or_service_or_with_a_password_is_refused(url):
    with pytest.raises(SettingError, match="allowed"):
        parse_server(url)


@pytest.mark.parametrize(
    ("name", "token"),
    [("s1", "s1"), ("web 1", "web=201"), ("a.*>=", "a=2E=2A=3E=3D"), ("é", "=C3=A9")],
)
def test_any_name_is_one_token_of_a_subject(name, token):
    assert subjects.token(name) == token
