"""Neighbours: two sets of programs that never mix, and each of them beside a real tenant."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from dial.agent.files import Tree
from dial.agent.throttling import Throttling
from dial.errors import LabError
from dial_lab import links
from dial_lab.calibration import SETTLE_S, saturation_rps
from dial_lab.cgroups import Cgroups
from dial_lab.links import Link
from dial_lab.neighbours import compiler, memcached, sqlite
from dial_lab.processes import Children
from dial_lab.resources import CPU, NET, RESOURCES, SELF_LIMITED, Resource, programs_for
from dial_lab.resources.base import chosen
from dial_lab.resources.disk import DISK
from dial_lab.resources.self_limited import Quota
from dial_lab.scenarios import scenario
from dial_lab.topology import Machine, machines, place


def test_sets_of_neighbours_never_mix() -> None:
    training = {name for each in RESOURCES.values() for name in programs_for(each, "training")}
    unseen = {name for each in RESOURCES.values() for name in programs_for(each, "unseen")}
    assert not training & unseen


@pytest.mark.parametrize("resource", RESOURCES.values(), ids=RESOURCES)
def test_every_resource_has_both_sets_and_begins_with_what_is_trained_with(
    resource: Resource,
) -> None:
    assert next(iter(resource.programs)) in programs_for(resource, "training")
    assert programs_for(resource, "unseen")


def test_a_neighbour_that_there_is_not_is_refused_with_those_there_are() -> None:
    said = "neighbour crysis: no such program; allowed: iperf3, memcached"
    with pytest.raises(LabError, match=said):
        chosen(NET.programs, "crysis")


def test_every_neighbour_has_a_time_limit_of_its_own(tmp_path: Path) -> None:
    lines = [
        *(program.argv(tmp_path, 4217) for program in CPU.programs.values()),
        *(program.argv(tmp_path, 4217) for program in DISK.programs.values()),
        *(program.argv(Link("t7", 1_000_000), 4217) for program in NET.programs.values()),
        *(program.argv(Quota("g", 0.1), 4217) for program in SELF_LIMITED.programs.values()),
    ]
    assert len(lines) == 11
    assert [line for line in lines if "4217" not in " ".join(line)] == []


def test_no_neighbour_is_told_a_rate() -> None:
    for name, program in DISK.programs.items():
        assert not [word for word in program.argv(Path("/d"), 40) if "rate" in word], name


def test_a_quota_is_a_share_of_its_period() -> None:
    # 0.09 of a core in 100 ms.
    argv = SELF_LIMITED.programs["quota-100ms"].argv(Quota("g/fg", 0.09), 40)
    assert argv[-4:] == ["--group=g/fg", "--quota-us=9000", "--period-us=100000", "--seconds=40"]


def test_mixed_takes_the_nic_of_one_machine_and_later_the_cpu_of_another() -> None:
    mixed = scenario("mixed")
    first, second = mixed.visits
    assert (mixed.taken_by(first).name, mixed.taken_by(second).name) == ("net", "cpu")
    assert first.machine != second.machine
    assert first.begin < second.begin


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_lifted_quota_is_none_in_both_versions(tmp_path: Path, is_v2: bool) -> None:
    (tmp_path / "g").mkdir()
    groups = Cgroups(tmp_path, is_v2, ())
    groups.lift_quota("g")
    name, text = ("cpu.max", "max") if is_v2 else ("cpu.cfs_quota_us", "-1")
    assert (tmp_path / "g" / name).read_text() == text


def test_the_generated_source_has_no_two_functions_alike() -> None:
    bodies = compiler.source(20).split("static ")[1:]
    assert len(set(bodies)) == 20


def test_a_database_is_filled_with_a_commit_after_each_mebibyte(tmp_path: Path) -> None:
    file = tmp_path / "rows.db"
    file.write_bytes(b"from another time")
    sqlite.fill(file, time.monotonic() + 60.0, commits=2)
    with sqlite3.connect(file) as database:
        count, size = database.execute("SELECT count(*), sum(length(content)) FROM rows").fetchone()
    assert (count, size) == (128, 2 * 2**20)


def test_a_value_is_stored_once_and_its_whole_answer_taken() -> None:
    client, server = socket.socketpair()
    with client, server:
        server.sendall(b"STORED\r\n")
        count = memcached.store(client, 1000)
        assert server.recv(4096) == b"set value 0 0 1000\r\n" + bytes(1000) + b"\r\n"
        answer = b"VALUE value 0 1000\r\n" + bytes(1000) + b"\r\nEND\r\n"
        server.sendall(answer + b"next")
        memcached.fetch(client, count)
        assert server.recv(4096) == b"get value\r\n"
        assert client.recv(100) == b"next"


def test_a_refused_value_is_reported_in_memcacheds_words() -> None:
    client, server = socket.socketpair()
    with client, server:
        server.sendall(b"SERVER_ERROR object too large for cache\r\n")
        with pytest.raises(ValueError, match="memcached: SERVER_ERROR object too large"):
            memcached.store(client, 10)


def test_memcached_that_is_gone_is_an_error() -> None:
    client, server = socket.socketpair()
    with client:
        server.close()
        with pytest.raises(OSError, match=r"closed|Broken pipe"):
            memcached.fetch(client, 10)


@pytest.fixture
def machine(cgroups: Cgroups) -> Iterator[Machine]:
    """One machine; its clients keep off its core, as in a run."""
    cores = os.sched_getaffinity(0)
    placement = place(sorted(cores), 1)
    with machines(cgroups, ["t1"], [placement.machines[0]]) as (built,):
        os.sched_setaffinity(0, placement.harness)
        yield built
        os.sched_setaffinity(0, cores)


def shares_taken(
    resource: Resource, machine: Machine, directory: Path, running: Callable[[], str]
) -> Mapping[str, float]:
    """What each of the resource's unseen neighbours takes when told to take 0.7.

    Also asserts that nothing of it is ``running`` soon after it was stopped.
    """
    taken = {}
    with (
        Children(directory) as children,
        resource.tenants([machine], children) as addresses,
    ):
        address = addresses[machine.name]
        quiet_rps = saturation_rps(address, resource.cost, 1.0)
        for program in programs_for(resource, "unseen"):
            neighbour = resource.start_neighbour(children, machine, 0.7, 3.0, program)
            saturation_rps(address, resource.cost, SETTLE_S)
            taken[program] = 1.0 - saturation_rps(address, resource.cost, 1.5) / quiet_rps
            children.check()
            assert running() != ""
            children.stop(neighbour)
            give_up = time.monotonic() + 2.0
            while running() and time.monotonic() < give_up:
                time.sleep(0.02)
            assert running() == ""
    return taken


@pytest.mark.root
def test_memcached_takes_the_share_of_the_nic_it_is_told_and_ends_with_its_clients(
    machine: Machine, tmp_path: Path, in_a_calm_moment: Callable[..., object]
) -> None:
    def running() -> str:
        return links.run("ip", "netns", "pids", f"{links.PREFIX}{machine.name}-host")

    expected = {"memcached": pytest.approx(0.7, abs=0.05)}

    def measure() -> dict[str, float]:
        return shares_taken(NET, machine, tmp_path, running)

    assert in_a_calm_moment(measure, expected) == expected


@pytest.mark.root
def test_unseen_neighbours_take_the_cpu_time_they_are_told_and_end_with_all_they_started(
    machine: Machine, tmp_path: Path, in_a_calm_moment: Callable[..., object]
) -> None:
    expected = dict.fromkeys(["sysbench", "compiler"], pytest.approx(0.7, abs=0.2))

    def measure() -> dict[str, float]:
        return shares_taken(CPU, machine, tmp_path, machine.neighbour_files()[0].read_text)

    assert in_a_calm_moment(measure, expected) == expected


@pytest.mark.root
def test_a_vm_below_its_own_quota_is_throttled_and_says_so_until_it_is_lifted(
    machine: Machine, tmp_path: Path, in_a_calm_moment: Callable[..., object]
) -> None:
    with Children(tmp_path) as children, SELF_LIMITED.tenants([machine], children) as addresses:
        counter = Throttling(Tree(), str(machine.cgroups.cpu / machine.fg))

        def saturated() -> tuple[float, object]:
            before = counter.read()
            rps = saturation_rps(addresses["t1"], SELF_LIMITED.cost, 1.5)
            return rps, counter.rates(before, counter.read(), 1.5)["throttled_fraction"]

        def measure() -> dict[str, object]:
            quiet_rps, quiet_throttled = saturated()
            quota = SELF_LIMITED.start_neighbour(children, machine, 0.6, 10.0)
            saturation_rps(addresses["t1"], SELF_LIMITED.cost, SETTLE_S)
            limited_rps, limited_throttled = saturated()
            children.stop(quota)
            lifted_rps, lifted_throttled = saturated()
            return {
                "lost": 1.0 - limited_rps / quiet_rps,
                "limited_throttled": limited_throttled,
                "lifted": lifted_rps / quiet_rps,
                "else_throttled": (quiet_throttled, lifted_throttled),
            }

        expected = {
            "lost": pytest.approx(0.6, abs=0.1),
            "limited_throttled": pytest.approx(1.0, abs=0.1),
            "lifted": pytest.approx(1.0, rel=0.2),
            "else_throttled": (0.0, 0.0),
        }
        assert in_a_calm_moment(measure, expected) == expected
