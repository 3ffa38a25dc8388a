"""Two controllers, two balancers, a real NATS server: one leads, one plan reaches both."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter

import pytest

from dial import subjects
from dial.clock import SystemClock
from dial.errors import FleetError, IntakeError
from dial.fleet.link import connect
from dial.fleet.member import Member
from dial.fleet.reader import Reader
from dial.types import Mode

from .conftest import INTERVAL_S, MemoryBalancer, Pool, until


class Group:
    """Readers and controllers in one process, each with a connection of its own."""

    def __init__(self, make_settings) -> None:
        self.make_settings = make_settings
        self.pool = Pool()
        self.balancers: dict[str, MemoryBalancer] = {}
        self.members: dict[str, Member] = {}
        self.told: list[dict[str, object]] = []
        self._stops: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._links = []

    async def link(self, name: str):
        link = await connect(self.make_settings(name).fleet, Counter())
        self._links.append(link)
        return link

    async def watch(self) -> None:
        settings, link = self.make_settings("watcher"), await self.link("watcher")

        def tell(content: bytes) -> None:
            self.told.append(json.loads(content))

        await link.subscribe(subjects.ticks(settings.service), tell)

    async def add_reader(self, name: str, of: int, **given) -> MemoryBalancer:
        settings, link = self.make_settings(name, **given), await self.link(name)
        balancer = MemoryBalancer(self.pool, of, seed=len(self.balancers))
        self.balancers[name] = balancer
        reader = Reader(settings, balancer, link, SystemClock())
        await reader.begin()

        async def ticks() -> None:
            while True:
                await asyncio.sleep(INTERVAL_S)
                await reader.tick(INTERVAL_S)

        self._tasks[name] = [
            asyncio.create_task(work) for work in (reader.read_log(), reader.follow(), ticks())
        ]
        return balancer

    async def add_member(self, name: str, **given) -> Member:
        settings, link = self.make_settings(name, **given), await self.link(name)
        member, stop = Member(settings, link, SystemClock()), asyncio.Event()
        self.members[name], self._stops[name] = member, stop
        self._tasks[name] = [asyncio.create_task(member.run(stop))]
        return member

    async def stop(self, name: str) -> None:
        self._stops[name].set()
        await asyncio.gather(*self._tasks[name])

    async def kill(self, name: str) -> None:
        """Nothing is said any more: no last words, no resigning."""
        for link in self._links:
            if link.name == name:
                link.client.options["allow_reconnect"] = False
                link.client._transport.close()
        for task in self._tasks[name]:
            task.cancel()
        await asyncio.gather(*self._tasks[name], return_exceptions=True)

    async def aclose(self) -> None:
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()
        for tasks in self._tasks.values():
            await asyncio.gather(*tasks, return_exceptions=True)
        for link in self._links:
            with contextlib.suppress(Exception):
                await link.aclose()

    @property
    def terms(self) -> list[int]:
        return [told["term"] for told in self.told]

    def leader(self) -> str:
        return self.told[-1]["leader"] if self.told else ""

    def shifted(self) -> bool:
        return all(b.weights["s1"] < 100 < b.weights["s2"] for b in self.balancers.values())


@pytest.fixture
async def group(make_settings):
    made = Group(make_settings)
    await made.watch()
    yield made
    await made.aclose()


async def learn_and_shift(group: Group) -> None:
    """Learn for some ticks, then let a neighbour come to s1."""
    await until(lambda: len(group.told) >= 15, "ticks")
    group.pool.rho_bg["s1"] = 0.6
    await until(group.shifted, "load moves away from s1 at all balancers")


async def test_one_plan_reaches_both_balancers_of_a_service(group):
    await group.add_reader("lb-1", of=2)
    await group.add_reader("lb-2", of=2)
    member = await group.add_member("dial-1")
    await learn_and_shift(group)
    one, two = group.balancers["lb-1"], group.balancers["lb-2"]
    await until(lambda: one.weights == two.weights and member.balancer._wanted, "equal weights")
    observed = member.parts.publisher.current.observation
    assert observed is not None
    # 1,700 requests/s arrive, half of them at each balancer.
    rate = sum(backend.window.rate_per_s for backend in observed.backends)
    assert 1000.0 < rate < 2600.0
    assert observed.meaning.balancers == 2


async def test_when_the_leader_is_killed_the_other_goes_on_with_the_shift(group):
    balancer = await group.add_reader("lb-1", of=1)
    await group.add_member("dial-1")
    await until(lambda: group.leader() == "dial-1", "dial-1 leads")
    await group.add_member("dial-2")
    await learn_and_shift(group)
    before = len(balancer.writes)
    last_tick = group.told[-1]["tick"]
    await group.kill("dial-1")
    await until(lambda: group.leader() == "dial-2", "dial-2 leads")
    assert group.shifted()
    assert group.terms == sorted(group.terms)
    assert len(set(group.terms)) == 2
    # It goes on counting, from what was kept at most some ticks ago.
    taken_over = next(told for told in group.told if told["leader"] == "dial-2")
    assert taken_over["tick"] > last_tick // 2
    written = [weights for _, weights in balancer.writes[before:]]
    assert all(weights.get("s1", 1) < 100 for weights in written)


async def test_a_leader_that_is_stopped_hands_over_and_puts_nothing_back(group):
    balancer = await group.add_reader("lb-1", of=1)
    await group.add_member("dial-1")
    await until(lambda: group.leader() == "dial-1", "dial-1 leads")
    await group.add_member("dial-2")
    await learn_and_shift(group)
    await group.stop("dial-1")
    await until(lambda: group.leader() == "dial-2", "dial-2 leads")
    assert balancer.weights["s1"] < 100


async def test_weights_that_nobody_stands_by_are_put_back_by_the_reader(group):
    lease = {"lease": {"expires_s": 1.0}}
    balancer = await group.add_reader("lb-1", of=1, **lease)
    await group.add_member("dial-1", **lease)
    await learn_and_shift(group)
    await group.kill("dial-1")
    configured = dict.fromkeys(Pool.names, 100)
    await until(lambda: balancer.weights == configured, "configured weights")


async def test_a_reader_in_shadow_mode_writes_nothing(group):
    balancer = await group.add_reader("lb-1", of=1, mode=Mode.SHADOW)
    await group.add_member("dial-1")
    await until(lambda: len(group.told) >= 15, "ticks")
    group.pool.rho_bg["s1"] = 0.6
    await until(lambda: any(told["changes"] for told in group.told), "a plan")
    assert balancer.writes == []


async def test_who_stands_by_says_so_and_takes_no_orders(group):
    await group.add_reader("lb-1", of=1)
    await group.add_member("dial-1")
    await until(lambda: group.leader() == "dial-1", "dial-1 leads")
    other = await group.add_member("dial-2")
    await until(
        lambda: other.parts.publisher.current.trouble == "stands by: dial-1 leads", "stands by"
    )
    with pytest.raises(IntakeError, match="another controller of the fleet leads"):
        await other.parts.orders.freeze()


async def test_an_order_to_freeze_outlives_its_controller(group):
    balancer = await group.add_reader("lb-1", of=1)
    leader = await group.add_member("dial-1")
    await until(lambda: group.leader() == "dial-1", "dial-1 leads")
    other = await group.add_member("dial-2")
    await leader.parts.orders.freeze()
    await asyncio.sleep(0)
    await group.stop("dial-1")
    await until(lambda: group.leader() == "dial-2", "dial-2 leads")
    assert other.parts.orders.now().frozen
    assert balancer.writes == []


async def test_a_server_that_is_not_there_is_said_in_words(make_settings, monkeypatch):
    monkeypatch.setattr("dial.fleet.link.CONNECT_S", 0.5)
    settings = make_settings(fleet={"servers": ["nats://127.0.0.1:9"]})
    with pytest.raises(FleetError, match=r"fleet\.servers = nats://127\.0\.0\.1:9"):
        await connect(settings.fleet, Counter())
