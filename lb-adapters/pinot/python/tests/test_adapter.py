"""What the suite for all adapters does not ask: renewal, expiry, Pinot half away, the posts."""

from __future__ import annotations

import socket

import httpx
import pytest

from dial.adapter import Severity
from dial.errors import BalancerRefused, BalancerUnreachable, SettingError, UnknownService
from dial_pinot import create
from dial_pinot.cluster import servers_of
from dial_pinot.sources import MAX_BODY_BYTES, PATH
from dial_pinot.testing import SERVERS, TABLE, query_log_line
from dial_pinot.weights import Document, FileStore, decode

NODE = "/PinotCluster/PROPERTYSTORE/DIAL/weights"
WANTED = dict(zip(SERVERS, (24, 138, 138), strict=True))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_795_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def harness(make_harness):
    async with make_harness("file") as harness:
        harness.clock = Clock()
        harness.adapter._now_s = harness.clock
        yield harness


async def weights(harness) -> dict[str, int]:
    return {s.name: s.weight for s in (await harness.adapter.read()).servers}


async def test_weights_are_renewed_by_reading_and_keep_their_version(harness):
    await harness.adapter.apply(WANTED, version=1)
    first = await harness.adapter._store.read()
    harness.clock.now_s += 11.0  # a third of 30 s, and one
    assert await weights(harness) == WANTED
    renewed = await harness.adapter._store.read()
    assert renewed.version == first.version
    assert renewed.at_s == first.at_s + 11.0


async def test_weights_that_nobody_renewed_are_even_again(harness):
    await harness.adapter.apply(WANTED, version=1)
    harness.clock.now_s += 30.0
    assert await weights(harness) == dict.fromkeys(SERVERS, 100)


async def test_weights_that_ran_out_are_no_work_of_somebody_elses(harness):
    await harness.adapter.apply(WANTED, version=1)
    before = (await harness.adapter.read()).epoch
    harness.clock.now_s += 30.0
    expired = (await harness.adapter.read()).epoch
    assert expired != before
    await harness.adapter.apply(WANTED, version=2)
    assert (await harness.adapter.read()).epoch == expired


async def test_weights_that_were_taken_back_are_somebody_elses_work(harness):
    await harness.adapter.apply(WANTED, version=1)
    before = (await harness.adapter.read()).epoch
    harness.adapter._store._path.unlink()
    assert (await harness.adapter.read()).epoch == before


class Failing(FileStore):
    """A store that refuses to be written, or says so after it was."""

    written = fails = False

    async def write(self, document):
        if self.fails and not self.written:
            raise BalancerUnreachable("frozen")
        await super().write(document)
        if self.fails:
            raise BalancerUnreachable("no answer")


@pytest.fixture
def failing(harness):
    harness.adapter._store = Failing(harness.adapter._store._path)
    return harness.adapter._store


async def test_a_renewal_that_failed_is_tried_at_the_next_reading(harness, failing):
    await harness.adapter.apply(WANTED, version=1)
    harness.clock.now_s += 11.0
    failing.fails = True
    with pytest.raises(BalancerUnreachable):
        await harness.adapter.read()
    failing.fails = False
    harness.clock.now_s += 1.0
    await harness.adapter.read()
    assert (await failing.read()).at_s == harness.clock.now_s


@pytest.mark.parametrize("written", [False, True])
async def test_what_stands_there_after_a_write_that_failed_is_renewed(harness, failing, written):
    await harness.adapter.apply(WANTED, version=1)
    failing.fails, failing.written = True, written
    with pytest.raises(BalancerUnreachable):
        await harness.adapter.apply({SERVERS[0]: 30}, version=2)
    failing.fails = False
    harness.clock.now_s += 11.0
    assert await weights(harness) == WANTED | ({SERVERS[0]: 30} if written else {})
    assert (await failing.read()).at_s == harness.clock.now_s


async def test_a_file_that_holds_nothing_yet_is_written(harness):
    harness.adapter._store._path.touch()
    assert await weights(harness) == dict.fromkeys(SERVERS, 100)
    assert (await harness.adapter.apply(WANTED, version=1)).ok


async def test_weights_that_another_wrote_are_in_force_and_not_renewed(harness):
    await harness.adapter.apply(WANTED, version=1)
    ours = await harness.adapter._store.read()
    theirs = Document(ours.version + 5, ours.at_s, 30.0, dict.fromkeys(SERVERS, 7))
    await harness.adapter._store.write(theirs)
    harness.clock.now_s += 11.0
    assert await weights(harness) == dict.fromkeys(SERVERS, 7)
    assert await harness.adapter._store.read() == theirs


async def test_versions_grow_even_if_the_clock_is_set_back(harness):
    await harness.adapter.apply(WANTED, version=1)
    first = await harness.adapter._store.read()
    harness.clock.now_s -= 10.0
    await harness.adapter.apply({SERVERS[0]: 30}, version=2)
    assert (await harness.adapter._store.read()).version == first.version + 1


async def test_a_file_that_is_no_document_is_refused_by_name(harness):
    path = harness.adapter._store._path
    path.write_text("garbage")
    with pytest.raises(BalancerRefused, match=r"weights\.json"):
        await harness.adapter.read()


async def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    store = FileStore(tmp_path / "gone" / "weights.json")
    with pytest.raises(BalancerUnreachable, match="No such file"):
        await store.write(Document(1, 1.0, 1.0, {"a": 1}))


async def test_weights_stand_in_a_zookeeper_node_as_brokers_read_it(make_harness):
    async with make_harness("zookeeper") as harness:
        report = await harness.adapter.apply(WANTED, version=1)
        assert report.ok
        assert await weights(harness) == WANTED
        (node,) = harness.pinot.nodes.values()
        assert decode(node["simpleFields"]["document"], "node").weights == WANTED


async def test_a_node_of_something_else_is_refused(make_harness):
    async with make_harness("zookeeper") as harness:
        harness.pinot.nodes[NODE] = {"id": "x", "simpleFields": {}}
        with pytest.raises(BalancerRefused, match="a node of something else"):
            await harness.adapter.read()


async def test_a_server_that_serves_nothing_is_not_usable(harness):
    for states in harness.pinot.external.values():
        del states[SERVERS[1]]
    usable = {s.name: s.usable for s in (await harness.adapter.read()).servers}
    assert usable == {SERVERS[0]: True, SERVERS[1]: False, SERVERS[2]: True}


async def test_a_table_that_does_not_exist_is_said(harness):
    adapter = create("other_OFFLINE", harness.adapter.options.model_dump(exclude_none=True))
    with pytest.raises(UnknownService, match="other_OFFLINE"):
        await adapter.read()


async def test_while_pinots_controller_is_away_its_last_word_stands(harness):
    before = await harness.adapter.read()
    harness.adapter._cluster._rest._controller = "http://127.0.0.1:9"
    assert await harness.adapter.read() == before


async def test_while_pinots_controller_is_in_trouble_its_last_word_stands(harness):
    before = await harness.adapter.read()
    harness.pinot.answers_controller = 503
    assert await harness.adapter.read() == before


async def test_a_table_that_was_dropped_is_said(harness):
    await harness.adapter.read()
    harness.pinot.answers_controller = 404
    with pytest.raises(UnknownService):
        await harness.adapter.read()


@pytest.mark.parametrize("status", [404, 503])
async def test_one_broker_in_trouble_keeps_its_part_of_the_epoch(harness, status):
    cluster = harness.adapter._cluster
    trouble = f"{harness.pinot.url}/trouble/{status}"
    cluster._brokers = (harness.pinot.url, trouble)
    cluster._started[trouble] = "earlier"
    assert (await cluster.epoch()).endswith(" earlier")


async def test_no_tick_waits_longer_than_a_second_for_frozen_brokers(harness):
    asked = []

    async def frozen(method, url, **given):
        asked.append(given["timeout"])
        raise httpx.ReadTimeout("frozen")

    rest = harness.adapter._rest
    await harness.adapter.read()
    rest._client.request = frozen
    harness.adapter._cluster._brokers = ("http://a", "http://b")
    with pytest.raises(BalancerUnreachable):
        await harness.adapter._cluster.epoch()
    assert asked == [1.0, 1.0]


async def test_a_broker_that_is_away_keeps_its_part_of_the_epoch(harness):
    cluster = harness.adapter._cluster
    cluster._brokers = (harness.pinot.url, "http://127.0.0.1:9")
    cluster._started["http://127.0.0.1:9"] = "earlier"
    assert (await cluster.epoch()).endswith(" earlier")


def test_servers_whose_names_in_the_log_are_alike_are_ambiguous():
    ideal = {"s0": {"a": "ONLINE", "b": "ONLINE", "c": "ONLINE"}, "s1": {"c": "OFFLINE"}}
    hosts = {"a": "srv.east", "b": "srv.west", "c": "other.east"}
    servers = servers_of(ideal, ideal, hosts)
    assert servers.by_log_name == {"other": "c"}
    assert servers.ambiguous == ("a", "b")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"garbage", 422),
        (b'{"format": 2}', 422),
        (b"x" * (MAX_BODY_BYTES + 1), 413),
    ],
)
async def test_a_post_that_is_none_is_refused(harness, body, status):
    await harness.adapter.read()
    async with httpx.AsyncClient() as client:
        answer = await client.post(harness.log_url + PATH, content=body)
    assert answer.status_code == status


async def test_posts_need_the_token_where_there_is_one(make_harness, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    async with make_harness() as harness:
        options = harness.adapter.options.model_copy(update={"token_file": tmp_path / "token"})
        harness.adapter._log._options = options
        await harness.adapter.read()
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            await harness.pinot.post([query_log_line({"127.0.0.2_O": 6})])
        harness.pinot.token = "secret"
        await harness.pinot.post([query_log_line({"127.0.0.2_O": 6})])
        assert harness.adapter._log.counters.requests == 1


async def test_posts_are_taken_on_an_address_of_ipv6(harness):
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as probe:
            port = probe.getsockname()[1]
    except OSError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    options = harness.adapter.options.model_copy(update={"log": f"http://[::1]:{port}"})
    harness.adapter._log._options = options
    await harness.adapter.read()
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"http://[::1]:{port}{PATH}", content=b"garbage")
    assert answer.status_code == 422


async def errors(harness) -> list[str]:
    found = await harness.adapter.check()
    return [f.what for f in found if f.severity is Severity.ERROR]


async def test_check_says_that_the_table_has_another_selector(harness):
    harness.pinot.table_config["routing"] = {"instanceSelectorType": "replicaGroup"}
    assert await errors(harness) == [f"table {TABLE}: routing.instanceSelectorType is replicaGroup"]


async def test_check_says_that_a_broker_has_no_weights(harness):
    harness.pinot.jvm_arguments = ["-Xmx1g"]
    (error,) = await errors(harness)
    assert error.startswith(f"broker {harness.pinot.url}: its JVM has no dial.weights")


async def test_check_says_that_a_broker_follows_another_place(harness):
    harness.pinot.jvm_arguments = ["-Ddial.weights=http://127.0.0.1:9180/v1/weights"]
    (error,) = await errors(harness)
    assert "dial.weights is http:" in error


async def test_check_says_that_a_segment_has_one_replica(harness):
    harness.pinot.ideal["s0"] = {SERVERS[0]: "ONLINE"}
    assert len(await errors(harness)) == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("pinot", "127.0.0.1:9000"),
        ("brokers", []),
        ("weights", "redis:/x"),
        ("log", "http://0.0.0.0:9181"),
        ("valid_s", 1.0),
        ("colour", "red"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(option, value):
    options = {"pinot": "http://p:9000", "brokers": ["http://b:8099"], "log": "file:/q.log"}
    with pytest.raises(SettingError, match=f"adapter.options.{option}"):
        create(TABLE, {**options, option: value})


def test_a_table_without_its_type_is_refused():
    with pytest.raises(SettingError, match="events_OFFLINE"):
        create("events", {})


def test_a_document_is_read_as_it_was_written():
    document = Document(5, 1.5, 30.0, WANTED)
    assert decode(document.encode(), "here") == document
