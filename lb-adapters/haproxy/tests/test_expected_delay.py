"""The rules of the shortest expected delay, in a real HAProxy."""

from __future__ import annotations

import asyncio
import csv
import socket
from collections import Counter
from itertools import product

import pytest
import pytest_asyncio

from dial.types import WeightKind
from dial_haproxy.config import expected_delay, rules_variable


@pytest_asyncio.fixture
async def proxy(real_harness):
    async with real_harness("leastconn", by_delay=True) as harness:
        yield harness


async def served(proxy, requests: int) -> Counter[str]:
    """Who serves requests that find all servers idle.

    HAProxy takes a request off its server's count a moment after the client has its answer.
    """
    before = await counts(proxy)
    for _ in range(requests):
        await proxy.send(1)
        await until_idle(proxy)
    return await counts(proxy) - before


async def until_idle(proxy) -> None:
    async with asyncio.timeout(5.0):
        while True:
            if not any((await held(proxy)).values()):
                return
            await asyncio.sleep(0.001)


async def counts(proxy) -> Counter[str]:
    state = await proxy.adapter.read()
    return Counter({server.name: server.requests_total for server in state.servers})


async def tell(proxy, *commands: str) -> None:
    assert await proxy.client.ask(commands) == [""] * len(commands)


async def test_idle_servers_of_one_weight_take_turns(proxy):
    assert await served(proxy, 9) == {"s1": 3, "s2": 3, "s3": 3}


async def test_a_slow_server_gets_nothing_while_a_faster_one_is_idle(proxy):
    await proxy.adapter.apply({"s1": 9}, version=1)
    assert await served(proxy, 8) == {"s2": 4, "s3": 4}


async def test_a_server_takes_its_turn_again_with_its_weight(proxy):
    await proxy.adapter.apply({"s1": 0}, version=1)
    assert await served(proxy, 8) == {"s2": 4, "s3": 4}
    await proxy.adapter.apply({"s1": 10}, version=2)
    assert await served(proxy, 9) == {"s1": 3, "s2": 3, "s3": 3}


ANOTHER = 11
"""A weight of one server that is not that of the others, for which the rules choose."""


@pytest.mark.parametrize("weight", [10, ANOTHER])
async def test_a_server_in_maintenance_is_left_out(proxy, weight):
    await proxy.adapter.apply({"s2": weight}, version=1)
    await tell(proxy, "set server app/s2 state maint")
    assert await served(proxy, 8) == {"s1": 4, "s3": 4}


@pytest.mark.parametrize("weight", [10, ANOTHER])
async def test_a_server_that_drains_is_left_out_by_balance(proxy, weight):
    await proxy.adapter.apply({"s2": weight}, version=1)
    await tell(proxy, "set server app/s2 state drain")
    assert (await proxy.adapter.read()).meaning.kind is WeightKind.CONCURRENCY
    assert await served(proxy, 8) == {"s1": 4, "s3": 4}
    await tell(proxy, "set server app/s2 state ready")
    assert (await proxy.adapter.read()).meaning.kind is WeightKind.SERVICE_RATE


async def test_a_server_that_was_disabled_in_the_file_serves_once_it_is_enabled(real_harness):
    async with real_harness("leastconn", config=with_s3(" disabled")) as proxy:
        assert [s.usable for s in (await proxy.adapter.read()).servers] == [True, True, False]
        await tell(proxy, "set server app/s3 state ready")
        assert all(server.usable for server in (await proxy.adapter.read()).servers)
        assert (await served(proxy, 9))["s3"] == 3


async def test_busy_servers_share_by_weight(proxy):
    """Of twelve that none has answered yet 2, 4 and 6 are the soonest served."""
    await proxy.adapter.apply({"s1": 20, "s2": 40, "s3": 60}, version=1)
    for member in proxy.members:
        member.delay_s = 2.0
    waiting = await sent_one_by_one(proxy, 12)
    assert await held(proxy) == {"s1": 2, "s2": 4, "s3": 6}
    assert await asyncio.gather(*waiting) == [200] * 12


async def test_whoever_is_free_first_serves_a_request_that_finds_all_servers_full(real_harness):
    """Its turn would be that of s1, which answers last."""

    def config(harness) -> str:
        harness.rules = expected_delay("app", harness.backends, limited=harness.backends)
        return harness.config().replace(" weight 10\n", " weight 10 maxconn 1\n")

    async with real_harness("leastconn", config=config) as proxy:
        for member, delay_s in zip(proxy.members, (2.0, 0.5, 2.0), strict=True):
            member.delay_s = delay_s
        await proxy.adapter.apply({"s3": 9}, version=1)
        before = await counts(proxy)
        waiting = await sent_one_by_one(proxy, 3)
        assert await asyncio.gather(*waiting, proxy.get("/")) == [200] * 4
        assert await counts(proxy) - before == {"s1": 1, "s2": 2, "s3": 1}


async def sent_one_by_one(proxy, requests: int) -> list[asyncio.Task[int]]:
    """Requests under way, all of them with a server."""
    waiting: list[asyncio.Task[int]] = []
    async with asyncio.timeout(2.0):
        # One by one: two threads that choose at the same time do not see each other's.
        while (in_flight := sum((await held(proxy)).values())) < requests:
            if in_flight == len(waiting):
                waiting.append(asyncio.create_task(proxy.get("/")))
            await asyncio.sleep(0.01)
    return waiting


async def held(proxy) -> dict[str, int]:
    state = await proxy.adapter.read()
    return {server.name: server.in_flight for server in state.servers}


@pytest.mark.parametrize(
    ("balance", "weight_of_s1", "option", "tried_again"),
    [
        ("leastconn", 9, "redispatch", 2),
        ("leastconn", 9, "redispatch 1", 0),
        ("leastconn", 10, "redispatch", 0),
        ("roundrobin", 10, "redispatch", 2),
    ],
)
async def test_what_a_server_refuses_goes_elsewhere_in_the_retries_that_are_named(
    real_harness, balance, weight_of_s1, option, tried_again
):
    """By default the last of three; the two before it are to the same server.

    But where ``balance leastconn`` chooses, for weights that are alike, it goes elsewhere at once.
    """
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen

        def config(harness) -> str:
            harness.rules = expected_delay("app", harness.backends, balance=balance)
            harness.member_ports[-1] = nobody.getsockname()[1]
            lines = f"    timeout connect 50ms\n    option {option}\n"
            return harness.config().replace("backend app\n", f"backend app\n{lines}")

        async with real_harness(balance, config=config) as proxy:
            await proxy.adapter.apply({"s1": weight_of_s1}, version=1)
            await proxy.send(3)
            (text,) = await proxy.client.ask(("show stat app 4 -1",))
    (s3,) = [row for row in csv.DictReader(text.splitlines()) if row["svname"] == "s3"]
    assert (int(s3["wretr"]), int(s3["wredis"])) == (tried_again, 1)


async def test_without_the_rules_a_weight_is_what_balance_makes_of_it(real_harness):
    async with real_harness("leastconn") as harness:
        assert (await harness.adapter.read()).meaning.kind is WeightKind.CONCURRENCY


def with_s3(rest: str, backups_at_once: int = 0):
    """A configuration in which s3 has no rules, and ``rest`` behind its line."""

    def config(harness) -> str:
        harness.rules = expected_delay("app", ["s1", "s2"], backups_at_once=backups_at_once)
        return harness.config().rstrip() + f"{rest}\n"  # its line is the last

    return config


async def test_a_backup_serves_where_all_who_are_up_drain(real_harness):
    """HAProxy counts one server that can be used, the backup; so do the rules, the drained one."""
    config = with_s3(" backup", backups_at_once=1)
    async with real_harness("leastconn", config=config) as proxy:
        await proxy.adapter.apply({"s1": ANOTHER}, version=1)
        await tell(proxy, "set server app/s1 state drain", "set server app/s2 state maint")
        assert await served(proxy, 4) == {"s3": 4}


async def test_of_two_servers_beside_a_backup_the_rules_choose(real_harness):
    config = with_s3(" backup", backups_at_once=1)
    async with real_harness("leastconn", config=config) as proxy:
        assert (await proxy.adapter.read()).meaning.kind is WeightKind.SERVICE_RATE
        await proxy.adapter.apply({"s1": 9}, version=1)
        assert await served(proxy, 4) == {"s2": 4}
        await tell(proxy, "set server app/s2 state drain")
        assert await served(proxy, 4) == {"s1": 4}


async def test_while_a_server_without_rules_is_up_balance_chooses(real_harness):
    async with real_harness("leastconn", config=with_s3("")) as proxy:
        assert (await proxy.adapter.read()).meaning.kind is WeightKind.CONCURRENCY
        await proxy.adapter.apply({"s1": 9}, version=1)
        assert set(await served(proxy, 9)) == {"s1", "s2", "s3"}
        await tell(proxy, "set server app/s3 state maint")
        assert (await proxy.adapter.read()).meaning.kind is WeightKind.SERVICE_RATE
        assert await served(proxy, 4) == {"s2": 4}


async def test_a_server_without_rules_hides_that_another_drains_but_not_its_weight_0(real_harness):
    async with real_harness("leastconn", config=with_s3("")) as proxy:
        await proxy.adapter.apply({"s1": ANOTHER}, version=1)
        await tell(proxy, "set server app/s1 state drain")
        assert await served(proxy, 4) == {"s1": 4}
        await tell(proxy, "set server app/s1 state ready", "set weight app/s1 0")
        assert set(await served(proxy, 4)) == {"s2", "s3"}


@pytest.mark.parametrize(
    ("service", "word"),
    [("app", "app"), ("my_app2", "my_app2"), ("my-app.v1:a", "my.2dapp.2ev1.3aa")],
)
def test_names_become_names_of_variables(service, word):
    rules = expected_delay(service, ["web-1", "s2"])
    assert rules.in_global == (
        f"set-var proc.dial.{word}.servers str(web-1/s2)",
        f"set-var proc.dial.{word}.turn int(0)",
        f"set-var proc.dial.{word}.last.web.2d1 int(0)",
        f"set-var proc.dial.{word}.last.s2 int(0)",
    )
    assert rules_variable(service) == f"proc.dial.{word}.servers"
    assert any(f"srv_conn({service}/web-1)," in rule for rule in rules.in_backend)


def test_names_that_differ_have_variables_that_differ():
    names = ["".join(chars) for size in (1, 2, 3) for chars in product("a_.:-2d", repeat=size)]
    assert len(names) == 7 + 7**2 + 7**3
    assert len({rules_variable(name) for name in names}) == len(names)
    assert len(set(expected_delay("app", names).in_global)) == len(names) + 2
