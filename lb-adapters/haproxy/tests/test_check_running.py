"""Whether what runs is what the files say, on the fake and on a real HAProxy."""

from __future__ import annotations

import os

import pytest

from dial.adapter import Severity, apply_edits
from dial.conformance import reading_log
from dial.errors import SettingError
from dial_haproxy import create
from dial_haproxy.cfg.check import check
from dial_haproxy.cfg.lines import ConfigFile
from dial_haproxy.cfg.running import addresses
from dial_haproxy.cfg.sections import parse
from dial_haproxy.config import expected_delay
from dial_haproxy.testing import STATE_HEADER, FakeHAProxy, FakeServer

CONFIG = """\
global
    stats socket {socket} level admin
defaults
    mode http
    log /dev/log local0
    option httplog
frontend www
    bind :80
    default_backend app
backend app
    balance {balance}
    server s1 127.0.0.1:18081 weight 10
    server s2 {s2} weight {weight}
"""


@pytest.fixture
async def fake(directory):
    servers = {name: FakeServer(configured_weight=10) for name in ("s1", "s2")}
    fake = FakeHAProxy(directory / "s", servers=servers)
    await fake.start()
    yield fake
    await fake.stop()


def checked(fake, path, **wrong):
    values = {"balance": "roundrobin", "s2": "127.0.0.1:18081", "weight": 10} | wrong
    path.write_text(CONFIG.format(socket=fake.path, **values))
    os.utime(path, (fake.start_time_s, fake.start_time_s))
    options = {"socket": str(fake.path), "log": "file:/nowhere/log", "config_file": str(path)}
    return create("app", options | {"check_wait_s": 0.0})


async def differences(adapter):
    return [
        (f.severity.value, f.what, f.fix)
        for f in await adapter.check()
        if "HAProxy runs" in f.what or "after HAProxy started" in f.what or "sends to" in f.what
    ]


async def test_what_runs_as_the_file_says_is_said(fake, directory):
    adapter = checked(fake, directory / "h.cfg")
    assert await differences(adapter) == []
    assert any("runs as the file says" in f.what for f in await adapter.check())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"balance": "leastconn"}, "balance leastconn, HAProxy runs balance roundrobin"),
        ({"balance": "random"}, "balance random, HAProxy runs balance roundrobin"),
        ({"weight": 20}, "server s2 has weight 20, HAProxy runs it with 10"),
        (
            {"weight": "10\n    server s3 127.0.0.1:1"},
            "the file has server s3, HAProxy runs without",
        ),
    ],
)
async def test_a_file_that_was_not_loaded_is_an_error_with_what_to_do(fake, directory, wrong, said):
    path = directory / "h.cfg"
    ((severity, what, fix),) = await differences(checked(fake, path, **wrong))
    assert severity == "error"
    assert what.endswith(said)
    assert fix == f"haproxy -c -f {path}, and reload"


async def test_a_server_that_the_file_lost_is_an_error(fake, directory):
    fake.servers["old"] = FakeServer(configured_weight=10)
    ((severity, what, _),) = await differences(checked(fake, directory / "h.cfg"))
    assert (severity, what.partition(": ")[2]) == (
        "error",
        "HAProxy runs server old, the file is without",
    )


async def test_a_level_that_was_not_loaded_is_an_error(fake, directory):
    fake.level = "operator"
    ((severity, what, _),) = await differences(checked(fake, directory / "h.cfg"))
    assert (severity, what) == ("error", "stats socket at level admin, HAProxy runs it at operator")


async def test_another_address_is_a_warning_and_a_name_is_not_compared(fake, directory):
    ((severity, what, _),) = await differences(
        checked(fake, directory / "h.cfg", s2="127.0.0.2:18081")
    )
    assert severity == "warning"
    assert what.endswith("server s2 is at 127.0.0.2:18081, HAProxy sends to 127.0.0.1:18081")
    assert await differences(checked(fake, directory / "h.cfg", s2="localhost:18081")) == []


async def test_a_file_newer_than_the_process_is_a_warning(fake, directory):
    path = directory / "h.cfg"
    adapter = checked(fake, path)
    os.utime(path, (fake.start_time_s + 60, fake.start_time_s + 60))
    ((severity, what, _),) = await differences(adapter)
    assert severity == "warning"
    assert "was changed at" in what


async def test_servers_under_a_condition_are_not_compared(fake, directory):
    more = "10\n.if defined(MORE)\n    server s3 127.0.0.1:1\n.endif"
    adapter = checked(fake, directory / "h.cfg", weight=more)
    assert await differences(adapter) == []
    assert any("are not compared" in f.what for f in await adapter.check())


async def test_a_file_that_cannot_be_read_is_a_setting_error(fake, directory):
    adapter = checked(fake, directory / "h.cfg")
    (directory / "h.cfg").unlink()
    with pytest.raises(SettingError, match=r"h\.cfg: No such file"):
        await adapter.check()


@pytest.mark.parametrize("text", ["", "1", "1\n# a b\nx", f"1\n{STATE_HEADER}\n\n"])
def test_addresses_that_are_not_there_are_none(text):
    assert addresses(text) == {}


async def test_a_real_haproxy_runs_as_its_file_says_until_the_file_changes(real_harness):
    async with real_harness("leastconn") as real:
        path = real.directory / "haproxy.cfg"
        options = {
            "socket": str(real.runtime),
            "log": str(real.adapter.options.log),
            "config_file": str(path),
            "check_wait_s": 0.0,
        }
        adapter = create("app", options)
        assert [f for f in await adapter.check() if f.severity is Severity.ERROR] == []
        path.write_text(path.read_text().replace("weight 10\n", "weight 11\n", 1))
        ((severity, what, _),) = await differences(adapter)
        assert (severity, what) == (
            "error",
            "backend app: server s1 has weight 11, HAProxy runs it with 10",
        )


def mended(real) -> str:
    """A file without anything that DIAL needs, and then with what check proposes."""
    servers = "".join(
        f"    server {name} 127.0.0.1:{port} weight 10\n"
        for name, port in zip(real.backends, real.member_ports, strict=True)
    )
    text = (
        f"global\n    stats socket {real.runtime} level user\n"
        "defaults\n    timeout connect 1s\n    timeout client 5s\n    timeout server 5s\n"
        f"    balance source\nlisten app\n    bind 127.0.0.1:{real.port}\n{servers}"
    )
    findings = check(parse([ConfigFile.of("h.cfg", text)]), "app", real.adapter.options)
    return apply_edits(text, [e for f in findings for e in f.edits if f.severity != "note"])


@pytest.mark.parametrize("log", ["tcp", "syslog", "unixgram"])
async def test_what_check_proposes_makes_an_haproxy_that_dial_can_drive(real_harness, log):
    async with real_harness(log=log, config=mended) as real:
        assert (await real.adapter.apply({"s1": 20}, version=1)).ok
        async with reading_log(real) as read:
            await real.send(6)
            await read.until(rows=6)
        assert (read.rows, read.malformed) == (6, 0)


async def test_rules_that_only_the_file_has_are_an_error(fake, tmp_path):
    path = tmp_path / "h.cfg"
    adapter = checked(fake, path)
    rules = expected_delay("app", ["s1", "s2"])
    text = path.read_text()
    text = text.replace("defaults\n", "".join(f"    {s}\n" for s in rules.in_global) + "defaults\n")
    path.write_text(text + "".join(f"    {statement}\n" for statement in rules.in_backend))
    os.utime(path, (fake.start_time_s, fake.start_time_s))
    ((severity, what, _),) = await differences(adapter)
    assert severity == "error"
    assert what.endswith("with the rules for the shortest expected delay, HAProxy runs without")
    fake.with_rules = ("s1", "s2")
    assert await differences(adapter) == []
    path.write_text(CONFIG.format(socket=fake.path, balance="roundrobin", s2="-", weight=10))
    assert any(w.endswith("delay, HAProxy runs with") for _, w, _ in await differences(adapter))
