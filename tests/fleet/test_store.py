"""Leadership and what is handed over, on a real NATS server."""

from __future__ import annotations

import asyncio
import random

import pytest

from dial.clock import SystemClock
from dial.errors import Deposed
from dial.fleet.election import Election
from dial.fleet.fenced import FencedKey
from dial.fleet.handover import PART_BYTES, StoredHandover
from dial.lease import Lease, Moment

from .conftest import WAIT_S, Names, until

TTL_S = 1.0


def candidate(link, service: str, name: str) -> Election:
    return Election(link.leaders, TTL_S, service=service, name=name, clock=SystemClock())


async def test_one_of_two_candidates_leads_and_the_other_knows_who(open_link):
    link, service = await open_link(), Names.next()
    one, two = candidate(link, service, "one"), candidate(link, service, "two")
    await one.win()
    waiting = asyncio.create_task(two.win())
    holding = asyncio.create_task(one.hold())
    await until(lambda: two.leader == "one", "it is told who leads")
    assert not waiting.done()
    for task in (waiting, holding):
        task.cancel()
    await asyncio.gather(waiting, holding, return_exceptions=True)


async def test_who_resigns_is_followed_with_a_higher_term(open_link):
    link, service = await open_link(), Names.next()
    one, two = candidate(link, service, "one"), candidate(link, service, "two")
    first = await one.win()
    await one.resign()
    async with asyncio.timeout(WAIT_S):
        assert await two.win() > first


async def test_who_does_not_renew_is_followed_and_notices(open_link):
    link, service = await open_link(), Names.next()
    one, two = candidate(link, service, "one"), candidate(link, service, "two")
    first = await one.win()
    async with asyncio.timeout(WAIT_S):
        assert await two.win() > first
        await one.hold()  # It was away; it ends at once, or with its first renewal.


async def test_who_renews_goes_on_leading(open_link):
    link, service = await open_link(), Names.next()
    one = candidate(link, service, "one")
    await one.win()
    holding = asyncio.create_task(one.hold())
    await asyncio.wait((holding,), timeout=2.0 * TTL_S)
    assert not holding.done()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


async def test_a_former_owner_writes_no_more(open_link):
    link = await open_link()
    key = Names.next()
    former, latter = FencedKey(link.documents, key), FencedKey(link.documents, key)
    await former.take()
    await former.put(b"1")
    assert await latter.take() == b"1"
    with pytest.raises(Deposed):
        await former.put(b"2")
    await latter.put(b"3")
    assert (await link.documents.get(key)).value == b"3"


async def test_lease_orders_and_a_state_larger_than_a_message_are_handed_over(open_link):
    link, service = await open_link(), Names.next()
    state = random.Random(1).randbytes(3 * PART_BYTES)  # does not compress
    lease = Lease(service, {"s1": (24,)}, Moment("fleet", 5.0), 10.0, pid=1)
    former = await StoredHandover.take(link, service, 1)
    assert former.documents.lease.read() is None
    assert former.documents.state.read() is None
    former.documents.lease.write(lease)
    former.documents.orders.write(b"{}")
    former.documents.state.write(b"an older one")
    await former.flush()
    former.documents.state.write(state)
    await former.flush()
    latter = await StoredHandover.take(link, service, 2)
    assert latter.documents.lease.read() == lease
    assert latter.documents.orders.read() == b"{}"
    assert latter.documents.state.read() == state
    former.documents.lease.remove()
    with pytest.raises(Deposed):
        await former.flush()


async def test_a_state_whose_parts_are_gone_is_damaged_and_not_an_error(open_link):
    link, service = await open_link(), Names.next()
    former = await StoredHandover.take(link, service, 1)
    former.documents.state.write(b"a state")
    await former.flush()
    for name in former._stored:
        await link.parts.purge(name)
    latter = await StoredHandover.take(link, service, 2)
    assert latter.documents.state.read() == b"damaged"


async def test_parts_of_an_older_state_are_forgotten(open_link):
    link, service = await open_link(), Names.next()
    handover = await StoredHandover.take(link, service, 1)
    handover.documents.state.write(b"one")
    await handover.flush()
    (older,) = handover._stored
    handover.documents.state.write(b"two")
    await handover.flush()
    assert older not in await link.parts.keys(ignore_deletes=True)
