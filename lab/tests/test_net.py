"""A machine's own network: built, shared as told, removed, also after a crash."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dial.errors import LabError
from dial_lab import links
from dial_lab.addresses import Address, wait_for_port
from dial_lab.calibration import calibrate
from dial_lab.cgroups import Cgroups
from dial_lab.links import Link, inside
from dial_lab.processes import Children
from dial_lab.resources import NET
from dial_lab.topology import machines

CRASH = """
import subprocess, time
from dial_lab.links import Link, inside
link = Link("t7", 40_000_000)
link.build()
child = subprocess.Popen([*inside(link.vm), "sleep", "60"])
while open(f"/proc/{child.pid}/comm").read() != "sleep\\n":
    time.sleep(0.01)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_addresses_follow_from_the_machines_number() -> None:
    link = Link("s3", 40_000_000)
    assert (link.balancer_address, link.vm_address) == ("10.213.3.1", "10.213.3.6")


@pytest.mark.parametrize("name", ["s", "s256", "machine1"])
def test_a_name_that_no_link_can_have_is_refused(name: str) -> None:
    # An interface has 15 characters, 9 of them are the prefix; a byte goes up to 255.
    with pytest.raises(LabError, match=rf"machine {name}: .* 6 characters .* 0 to 255"):
        Link(name, 40_000_000)


def test_requests_cost_bytes_on_a_connection_of_their_own() -> None:
    assert NET.cost.target(16_000) == "/work?bytes=16000&cpu_us=100"
    assert NET.cost.new_connections


def test_a_program_that_fails_is_named_with_its_words() -> None:
    with pytest.raises(LabError, match=r"nsenter .*dial-lab-none"):
        links.run(*inside("dial-lab-none"), "true")


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_links_are_removed_at_exit() -> None:
    with links.links([Link("t7", 40_000_000)]):
        assert set(links.stale()) == {"dial-lab-t7", "dial-lab-t7-host", "dial-lab-t7-vm"}
    assert links.stale() == ()


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_links_are_removed_when_building_fails_halfway() -> None:
    twice = [Link("t7", 40_000_000)] * 2
    with pytest.raises(LabError, match="dial-lab-t7-host"), links.links(twice):
        pass
    assert links.stale() == ()


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_what_a_killed_lab_left_is_ended_and_removed_by_the_next() -> None:
    with subprocess.Popen([sys.executable, "-c", CRASH], stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        orphan = os.pidfd_open(int(lab.stdout.readline()))
        lab.kill()
    assert links.stale() != ()
    with links.links([]):
        assert links.stale() == ()
    # A pid file descriptor becomes readable when the process has ended.
    assert select.select([orphan], [], [], 10.0)[0] == [orphan]
    os.close(orphan)


@pytest.mark.root
@pytest.mark.parametrize("rho_bg", [0.3, 0.7])
def test_neighbour_takes_the_share_it_is_told(
    rho_bg: float, cgroups: Cgroups, tmp_path: Path, in_a_calm_moment: Callable[..., object]
) -> None:
    core = max(os.sched_getaffinity(0))
    with (
        machines(cgroups, ["t7"], [core]) as (machine,),
        Children(tmp_path) as children,
        NET.tenants([machine], children) as addresses,
    ):
        # 16,052 bytes with the head are 11.1 segments of 1448 bytes with 66 of headers each:
        # 40e6 / 8 / (16052 * 1514 / 1448) = 298 answers a second.  The NIC, not the CPU.
        expected = (pytest.approx(298.0, rel=0.05), pytest.approx(rho_bg, abs=0.05))

        def measure() -> tuple[float, float]:
            found = calibrate(children, NET, machine, addresses, rho_bg=rho_bg, seconds=1.5)
            told = found["t7"]
            return told.quiet_rps, told.rho_bg

        assert in_a_calm_moment(measure, expected) == expected


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_the_neighbours_packets_are_not_in_the_tenants_counters(
    tmp_path: Path,
) -> None:
    link = Link("t7", 40_000_000)
    with links.links([link]), Children(tmp_path) as children:
        sink = Address(link.balancer_address, 5201)
        children.start("sink", ["iperf3", "-s", "-B", sink.host])
        wait_for_port(sink, children)
        before = _sent_bytes(link.vm, "eth0")
        # Some of it is still in its queue when the client ends.
        links.run(*inside(link.host), "iperf3", "-c", sink.host, "-n", "2M")
        assert _sent_bytes(link.host, "nic") > 1_000_000
        # A few neighbour discovery packets at most.
        assert _sent_bytes(link.vm, "eth0") - before < 2_000


def _sent_bytes(namespace: str, device: str) -> int:
    lines = links.run(*inside(namespace), "cat", "/proc/net/dev").splitlines()
    (row,) = (line for line in lines if line.split(":")[0].strip() == device)
    return int(row.split(":")[1].split()[8])
