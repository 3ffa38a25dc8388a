from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dial import bpf
from dial.agent.cgroups import MOUNTINFO, parse_mountinfo
from dial.agent.files import Tree
from dial.netcharge.collect import EstimatedCharge, MeasuredCharge, Reading
from dial.netcharge.estimate import Calibration, parse_packets
from dial.netcharge.ingress import Ingress
from dial.netcharge.softirq import Counts, Packets, Softirqs, charge_ns, cost_ns
from dial.types import METRIC_NAMES, AgentSample, NoData

ZERO = Counts(0, 0, {"web": 0}, {"web": Packets(0, 0)}, Packets(0, 0))


def test_a_group_pays_for_its_part_of_the_packets_by_direction() -> None:
    # A quarter of the received in 8 ms, and half of the sent in 2 ms.
    after = Counts(8_000_000, 2_000_000, {}, {"web": Packets(50, 5)}, Packets(200, 10))
    assert cost_ns(ZERO, after, "web") == 3_000_000.0


def test_no_packets_cost_nothing() -> None:
    after = Counts(5_000_000, 0, {"web": 0}, {"web": Packets(0, 0)}, Packets(0, 0))
    assert cost_ns(ZERO, after, "web") == 0.0


@pytest.mark.parametrize(("accounted", "charged"), [(True, -2e6), (False, 2e6)])
def test_what_it_did_in_its_own_context_is_paid_already_where_the_kernel_books_it(
    accounted: bool, charged: float
) -> None:
    after = Counts(8_000_000, 0, {"web": 4_000_000}, {"web": Packets(50, 0)}, Packets(200, 0))
    assert charge_ns(ZERO, after, "web", context_is_accounted=accounted) == charged


def test_own_use_of_the_cpu_holds_what_accounts_do_not_show() -> None:
    metrics: dict[str, float | NoData] = dict.fromkeys(METRIC_NAMES, NoData("x"))
    metrics |= {"cpu_usr_cores": 0.25, "cpu_sys_cores": 0.125}

    def own(**more: float) -> float | NoData:
        return AgentSample(0.0, 1.0, **{**metrics, **more}).cpu_time_cores  # type: ignore[arg-type]

    assert own() == 0.375
    assert own(net_softirq_cores=0.25) == 0.625
    assert own(net_softirq_cores=0.25, net_softirq_shown_cores=0.5) == 0.125
    assert own(net_softirq_cores=0.0, net_softirq_shown_cores=0.5) == 0.0


def test_the_cost_of_a_packet_is_learnt_where_there_are_enough() -> None:
    assert Calibration().cost_s == 1.67e-6
    learnt = Calibration().learn(softirq_s=0.03, packets=10_000, interval_s=1.0)
    assert learnt.cost_s == pytest.approx(3e-6)
    assert learnt.learn(softirq_s=0.9, packets=900, interval_s=1.0) is learnt
    assert learnt.learn(softirq_s=0.9, packets=900, interval_s=0.0) is learnt


def test_packets_of_all_interfaces_but_the_loopback_count() -> None:
    def line(name: str, received: int, sent: int) -> str:
        return f" {name}: 99 {received} 0 0 0 0 0 0 99 {sent} 0 0 0 0 0 0\n"

    head = "Inter-|   Receive\n face |bytes\n"
    assert parse_packets(head + line("lo", 9, 9) + line("eth0", 2, 3) + line("veth1", 1, 0)) == 6
    with pytest.raises(ValueError, match="sixteen"):
        parse_packets(head + "eth0: 1 2\n")


def test_the_estimate_is_packets_times_the_calibrated_cost() -> None:
    estimated = EstimatedCharge(Tree(), None)
    hz = os.sysconf("SC_CLK_TCK")
    # 0.2 s of softirqs for 100,000 packets: 2 us each; 10,000 are one's own.
    before, after = Reading(0, 0, 0, "n"), Reading(hz // 5, 100_000, 10_000, "n")
    assert estimated.rates(before, after, 1.0)["net_softirq_cores"] == pytest.approx(0.02)
    moved = Reading(0, 0, 0, "other")
    assert isinstance(estimated.rates(moved, after, 1.0)["net_softirq_cores"], NoData)


# ---------------------------------------------------------------- on a real kernel


@pytest.fixture
def group() -> Iterator[tuple[str, Path]]:
    mount = parse_mountinfo(Path(MOUNTINFO).read_text()).v2
    if os.geteuid() != 0 or mount is None:
        pytest.skip("needs root and a cgroup v2 hierarchy")
    directory = Path(mount) / f"dial-test-{os.getpid()}"
    try:
        directory.mkdir()
        Softirqs(mount, {"own": str(directory)}).close()
    except (OSError, bpf.BpfError) as error:
        if directory.exists():
            directory.rmdir()
        pytest.skip(f"eBPF cannot be used here: {error}")
    yield mount, directory
    directory.rmdir()


BURST = """
import os, pathlib, socket, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
to, out = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
to.bind(("127.0.0.1", 0))
for _ in range(int(sys.argv[2])):
    out.sendto(b"x" * 100, to.getsockname())
"""


def burst(join: Path, packets: int) -> None:
    """Send packets to oneself, over the loopback, from within a group."""
    subprocess.run([sys.executable, "-c", BURST, str(join), str(packets)], check=True, timeout=60)


@pytest.mark.root
def test_the_kernel_counts_a_groups_packets_and_the_time_they_take(
    group: tuple[str, Path],
) -> None:
    mount, directory = group
    softirqs = Softirqs(mount, {"own": str(directory)})
    before = softirqs.read()
    burst(directory, 2_000)
    after = softirqs.read()
    softirqs.close()
    assert after.packets["own"] == Packets(2_000, 2_000)
    assert after.all_packets.received - before.all_packets.received >= 2_000
    # Sent to itself, so received in its own context: there is next to nothing to charge.
    shown = after.context_ns["own"] - before.context_ns["own"]
    assert 0 < shown <= after.receiving_ns - before.receiving_ns
    measured = MeasuredCharge(softirqs, group=True, accounted=True)
    rates = measured.rates(before, after, 1.0)
    assert rates["net_softirq_shown_cores"] == pytest.approx(shown / 1e9)
    assert 0.0 < float(rates["net_softirq_cores"]) < 1.0  # type: ignore[arg-type]


@pytest.mark.root
def test_nothing_stays_attached_when_it_is_closed(group: tuple[str, Path]) -> None:
    mount, directory = group
    softirqs = Softirqs(mount, {"own": str(directory)})
    softirqs.close()
    with pytest.raises(bpf.BpfError, match="Bad file descriptor"):
        softirqs.read()


@pytest.mark.root
def test_a_group_that_is_not_there_is_named(group: tuple[str, Path]) -> None:
    mount, directory = group
    with pytest.raises(bpf.BpfError, match="nowhere"):
        Softirqs(mount, {"own": f"{directory}/nowhere"})


@pytest.mark.root
def test_packets_of_a_closed_service_are_dropped_at_the_device_and_no_others(
    group: tuple[str, Path],
) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as web,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out,
    ):
        ports = {}
        for name, receiver in (("sink", sink), ("web", web)):
            receiver.bind(("127.0.0.1", 0))
            receiver.setblocking(False)
            ports[name] = [receiver.getsockname()[1]]
        try:
            ingress = Ingress("lo", ports)
        except bpf.BpfError as error:
            pytest.skip(f"this kernel cannot drop at a device: {error}")

        def got(receiver: socket.socket) -> int:
            """How many of three packets arrive; the loopback delivers before send returns."""
            for _ in range(3):
                out.sendto(b"x", receiver.getsockname())
            arrived = 0
            with contextlib.suppress(BlockingIOError):
                while receiver.recv(16):
                    arrived += 1
            return arrived

        assert (got(sink), got(web)) == (3, 3)
        ingress.close_for(["sink"])
        assert (got(sink), got(web)) == (0, 3)
        assert ingress.dropped("sink") == 3
        ingress.close_for([])
        assert (got(sink), got(web)) == (3, 3)
        ingress.close()
