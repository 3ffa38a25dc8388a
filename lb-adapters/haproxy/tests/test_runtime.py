"""Runtime socket: framing, order of writes, refusals, and the fake against the real one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dial.adapter import Severity
from dial.errors import (
    BalancerRefused,
    BalancerUnreachable,
    SettingError,
    UnknownService,
)
from dial.types import WeightKind
from dial_haproxy import create, snippet, state
from dial_haproxy.adapter import in_safe_order
from dial_haproxy.options import Address
from dial_haproxy.runtime import MAX_LINE_BYTES, RuntimeClient, split_answers
from dial_haproxy.testing import FakeHAProxy, FakeServer


def test_an_empty_answer_before_a_failure_is_an_answer_of_its_own():
    text = "\nNo such server.\n\n\n20 (initial 10)\n\n"
    assert split_answers(text) == ["", "No such server.", "", "20 (initial 10)"]


def test_a_message_without_its_own_line_break_is_an_answer():
    assert split_answers("Empty weight string empty or preceded by garbage\n") == [
        "Empty weight string empty or preceded by garbage"
    ]


async def test_commands_too_long_for_one_line_are_sent_in_several(directory):
    names = [f"server-{i:04}" for i in range(500)]
    fake = FakeHAProxy(directory / "s", servers={name: FakeServer() for name in names})
    await fake.start()
    adapter = make(fake)
    report = await adapter.apply(dict.fromkeys(names, 7), version=1)
    await fake.stop()
    assert report.ok
    assert len(fake.lines) > 3
    assert all(len(line) <= MAX_LINE_BYTES for line in fake.lines)


def make(fake, **options):
    return create(
        fake.service,
        {"socket": str(fake.path), "log": "unixgram:/nowhere/log", "check_wait_s": 0.0} | options,
    )


@pytest.fixture
async def fake(directory):
    fake = FakeHAProxy(
        directory / "s", servers={n: FakeServer(configured_weight=100) for n in ("s1", "s2", "s3")}
    )
    await fake.start()
    yield fake
    await fake.stop()


def shares_on_the_way(order, wanted, present):
    weights = dict(present)
    for name in order:
        weights[name] = wanted[name]
        total = sum(weights.values())
        assert total > 0, "no server at all between two writes"
        yield {n: w / total for n, w in weights.items()}


def test_the_victim_never_gets_more_on_the_way_than_it_had():
    present = {"s1": 100, "s2": 100, "s3": 100}
    wanted = {"s1": 26, "s2": 115, "s3": 115}
    order = in_safe_order(wanted, present)
    # 100/315, 100/330, 26/256
    shares = [s["s1"] for s in shares_on_the_way(order, wanted, present)]
    assert shares == pytest.approx([100 / 315, 100 / 330, 26 / 256])


def test_swapping_a_drained_server_never_leaves_none():
    present, wanted = {"s1": 256, "s2": 0}, {"s1": 0, "s2": 256}
    order = in_safe_order(wanted, present)
    assert order == ["s2", "s1"]
    assert len(list(shares_on_the_way(order, wanted, present))) == 2


async def test_a_weight_already_in_force_is_not_written(fake):
    await make(fake).apply({"s1": 100, "s2": 40}, version=1)
    written = [line for line in fake.lines if "set weight" in line]
    assert written == ["set weight app/s2 40"]


async def test_a_weight_accepted_and_forgotten_is_a_failure(fake):
    fake.deaf = frozenset({"s2"})
    report = await make(fake).apply({"s1": 50, "s2": 50}, version=1)
    assert not report.ok
    assert report.failures == (("s2", "accepted; weight in force is 100, not 50"),)


async def test_a_socket_below_admin_refuses_with_the_line_to_change(fake):
    fake.level = "operator"
    with pytest.raises(BalancerRefused, match="level admin"):
        await make(fake).apply({"s1": 50}, version=1)
    errors = [f for f in await make(fake).check() if f.severity is Severity.ERROR]
    assert any("stats socket" in f.fix and "level admin" in f.fix for f in errors)


async def test_an_old_version_is_refused_by_name(fake):
    fake.version = "2.2.9-2"
    with pytest.raises(BalancerRefused, match=r"2\.2\.9-2 is too old: 2\.4 or newer"):
        await make(fake).read()


async def test_an_unknown_service_names_those_there_are(fake):
    adapter = create("nope", {"socket": str(fake.path), "log": "file:/nowhere"})
    with pytest.raises(UnknownService, match=r"'nope'.*there are: app"):
        await adapter.read()


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("roundrobin", WeightKind.REQUESTS),
        ("leastconn", WeightKind.CONCURRENCY),
        ("unknown", WeightKind.DRAW),  # what 2.6 prints for random
    ],
)
async def test_the_algorithm_says_what_a_weight_means(fake, algorithm, kind):
    fake.algorithm = algorithm
    assert (await make(fake).read()).meaning.kind is kind


async def test_where_the_rules_are_there_a_weight_is_a_service_rate(fake):
    fake.algorithm, fake.with_rules = "leastconn", ("s1", "s2", "s3")
    assert (await make(fake).read()).meaning.kind is WeightKind.SERVICE_RATE


@pytest.mark.parametrize(
    ("s3", "kind"),
    [
        (FakeServer(), WeightKind.CONCURRENCY),
        (FakeServer(weight=0), WeightKind.CONCURRENCY),  # which DIAL may have set itself
        (FakeServer(admin_state=1), WeightKind.SERVICE_RATE),
        (FakeServer(op_state=0), WeightKind.SERVICE_RATE),
        (FakeServer(backup=True), WeightKind.SERVICE_RATE),
    ],
)
async def test_a_server_without_rules_makes_balance_choose_while_it_is_up(fake, s3, kind):
    fake.algorithm, fake.with_rules = "leastconn", ("s1", "s2")
    fake.servers["s3"] = s3
    assert (await make(fake).read()).meaning.kind is kind
    said = [f.what for f in await make(fake).check() if f.severity is Severity.WARNING]
    assert any("expected delay name s3" in w for w in said) == (kind is WeightKind.CONCURRENCY)


@pytest.mark.parametrize(
    ("s3", "kind"),
    [
        (FakeServer(admin_state=8), WeightKind.CONCURRENCY),  # it drains
        (FakeServer(op_state=3), WeightKind.CONCURRENCY),
        (FakeServer(op_state=0), WeightKind.CONCURRENCY),  # it has no check of its own
        (FakeServer(op_state=0, check_state=6), WeightKind.SERVICE_RATE),
        (FakeServer(admin_state=1), WeightKind.SERVICE_RATE),
        (FakeServer(admin_state=8, weight=0), WeightKind.SERVICE_RATE),
    ],
)
async def test_balance_chooses_while_the_rules_count_a_server_that_haproxy_does_not(fake, s3, kind):
    fake.algorithm, fake.with_rules = "leastconn", ("s1", "s2", "s3")
    fake.servers["s3"] = s3
    assert (await make(fake).read()).meaning.kind is kind


@pytest.mark.parametrize("algorithm", ["static-rr", "first", "source", "uri", "hash"])
async def test_an_algorithm_without_use_for_weights_is_refused_with_the_reason(fake, algorithm):
    fake.algorithm = algorithm
    with pytest.raises(BalancerRefused, match="leastconn"):
        await make(fake).read()
    with pytest.raises(BalancerRefused):
        await make(fake).apply({"s1": 50}, version=1)
    assert not any("set weight" in line for line in fake.lines)
    errors = [f for f in await make(fake).check() if f.severity is Severity.ERROR]
    assert any("balance leastconn" in f.fix for f in errors)


async def test_counters_leave_retries_out(fake):
    fake.servers["s3"].attempts, fake.servers["s3"].retries = 12, 9
    server = (await make(fake).read()).servers[2]
    assert server.requests_total == 3  # three requests, each tried four times


@pytest.mark.parametrize(("op", "admin"), [(0, 0), (3, 0), (2, 1), (2, 8)])
async def test_down_stopping_maintenance_and_drain_are_not_usable(fake, op, admin):
    fake.servers["s1"].op_state, fake.servers["s1"].admin_state = op, admin
    usable = {s.name: s.usable for s in (await make(fake).read()).servers}
    assert usable == {"s1": False, "s2": True, "s3": True}


@pytest.mark.parametrize("admin", [0x04, 0x40])
async def test_where_it_began_and_a_new_name_take_no_server_out_of_service(fake, admin):
    fake.servers["s1"].admin_state = admin
    assert all(server.usable for server in (await make(fake).read()).servers)


async def test_a_backup_takes_part_once_nobody_else_is_left(fake):
    fake.servers["s3"].backup = True
    assert [s.usable for s in (await make(fake).read()).servers] == [True, True, False]
    fake.servers["s1"].op_state, fake.servers["s2"].weight = 0, 0
    assert [s.usable for s in (await make(fake).read()).servers] == [False, True, True]


async def test_no_socket_is_unreachable_by_name(directory):
    adapter = create("app", {"socket": f"{directory}/none", "log": "file:/nowhere"})
    with pytest.raises(BalancerUnreachable, match="none: No such file"):
        await adapter.read()


async def test_another_program_on_the_socket_is_refused(fake):
    fake.answer = lambda command: "220 mail ready\n\n"  # type: ignore[method-assign]
    with pytest.raises(BalancerRefused, match="no HAProxy"):
        await make(fake).read()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"socket": "run/dial.sock"}, r"adapter.options.socket = 'run/dial.sock': allowed are"),
        ({"log": "udp://127.0.0.1:5"}, r"adapter.options.log = 'udp:.*allowed are tcp://host:port"),
        ({"log": "tcp://127.0.0.1:99999"}, r"adapter.options.log"),
        ({"log_format": "clf"}, r"adapter.options.log_format = 'clf'.*'dial' or 'httplog'"),
        ({"timezone": "Mars/Base"}, r"adapter.options.timezone = 'Mars/Base'"),
        ({"sokcet": "/x"}, r"adapter.options.sokcet.*options are: socket"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_is_allowed(options, message):
    with pytest.raises(SettingError, match=message):
        create("app", {"socket": "/s", "log": "file:/l"} | options)


@pytest.mark.parametrize("service", ["", "a;shutdown sessions", "a b", "a\nb"])
def test_a_service_name_cannot_carry_a_command(service):
    with pytest.raises(SettingError, match="service"):
        create(service, {"socket": "/s", "log": "file:/l"})


async def test_the_fake_answers_as_the_real_one_does(directory, real_harness):
    fake = FakeHAProxy(
        directory / "fake",
        servers={n: FakeServer(configured_weight=10) for n in ("s1", "s2")},
        with_rules=("s1", "s2", "s3"),
    )
    commands = (
        "show cli level",
        "set weight app/s1 300",
        "set weight app/s1 20",
        "set weight app/s9 3",
        "set weight nope/s1 3",
        "show servers state nope",
        "get var proc.dial.nope.servers",
        "get var proc.dial.app.servers",
    )
    async with real_harness(by_delay=True) as real:
        client = RuntimeClient(real.adapter.options.socket, 5.0)
        said = await client.ask(commands)
        real_state, real_info = await client.ask(("show servers state app", "show info"))
    assert said == [split_answers(fake.answer(c))[0] for c in commands]
    assert real_state.splitlines()[1] == fake.answer("show servers state app").splitlines()[1]
    assert state.parse_info(real_info).version


async def test_a_real_static_algorithm_is_refused(real_harness):
    async with real_harness("static-rr") as real:
        with pytest.raises(BalancerRefused, match="static-rr"):
            await real.adapter.read()


async def test_a_frontend_of_the_same_name_does_not_hide_the_backend(real_harness):
    async with AsyncExitStack() as stack:
        try:
            real = await stack.enter_async_context(real_harness(frontend="app"))
        except AssertionError as refused:
            if "has the same name as" in str(refused):
                pytest.skip("this HAProxy refuses it, as all do from 3.3 on")
            raise
        await real.send(3)
        servers = (await real.adapter.read()).servers
    assert [(s.name, s.requests_total) for s in servers] == [("s1", 1), ("s2", 1), ("s3", 1)]


def test_an_address_prints_as_it_is_written():
    for text in ("tcp://127.0.0.1:9999", "tcp://[::1]:9999", "unix:/run/s", "file:/var/log/h"):
        assert str(Address.parse(text, ("tcp", "unix", "file"))) == text


def test_the_readme_shows_the_lines_that_the_code_gives():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    lines = snippet()
    for text in (lines.in_global, lines.section, lines.in_frontend):
        assert text in readme
