from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from dial.agent.files import Tree, Unavailable
from dial.agent.network import (
    INITIAL_NAMESPACE,
    GroupNamespace,
    Namespace,
    Network,
    Tcp,
    own_namespace,
)
from dial.types import NoData

Plant = Callable[[Mapping[str, str]], Tree]


def snmp(out: int, again: int) -> str:
    return (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs InErrs\n"
        f"Tcp: 1 -1 {out} {again} 0\n"
    )


def dev(**interfaces: tuple[int, int]) -> str:
    head = "Inter-|   Receive      |  Transmit\n face |bytes    packets|bytes\n"
    return head + "".join(
        f"{name:>6}:{rx:>8} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0\n"
        for name, (rx, tx) in interfaces.items()
    )


def test_segments_are_found_by_name_not_by_place(plant: Plant) -> None:
    tcp = Tcp(plant({"/proc/net/snmp": snmp(1000, 10)}), own_namespace)
    before = tcp.read()
    plant({"/proc/net/snmp": snmp(1500, 15)})
    assert tcp.rates(before, tcp.read(), 2.0) == {
        "tcp_segments_out_per_s": 250.0,
        "tcp_retransmits_per_s": 2.5,
    }


def test_a_machine_counts_hardware_interfaces_once(plant: Plant) -> None:
    tree = plant(
        {
            "/proc/net/dev": dev(lo=(5, 5), eth0=(100, 200), br0=(100, 200)),
            "/sys/class/net/eth0/device/vendor": "1",
        }
    )
    network = Network(tree, own_namespace, hardware_only=True)
    before = network.read()
    plant({"/proc/net/dev": dev(lo=(9, 9), eth0=(1100, 2200), br0=(1100, 2200))})
    assert network.rates(before, network.read(), 2.0) == {
        "net_rx_bytes_per_s": 500.0,
        "net_tx_bytes_per_s": 1000.0,
    }


def test_an_interface_that_appears_or_goes_backwards_makes_no_burst(plant: Plant) -> None:
    network = Network(
        plant({"/proc/net/dev": dev(a=(100, 100))}), own_namespace, hardware_only=True
    )
    before = network.read()
    plant({"/proc/net/dev": dev(a=(150, 50), b=(10_000, 10_000))})
    rates = network.rates(before, network.read(), 1.0)
    assert rates["net_rx_bytes_per_s"] == 50.0
    assert isinstance(rates["net_tx_bytes_per_s"], NoData)


def test_a_group_in_its_own_namespace_is_read_there(plant: Plant) -> None:
    tree = plant({"/proc/7/ns/net": "-> net:[4026532999]", "/proc/1/ns/net": "-> net:[4026531840]"})
    locate = GroupNamespace(tree, lambda: [7, 8])
    assert locate() == Namespace("net:[4026532999]", "/proc/7/net")


@pytest.mark.parametrize(
    "links",
    [
        {"7": "net:[55]", "1": "net:[55]"},
        {"7": INITIAL_NAMESPACE, "1": "net:[55]"},
        {"7": "net:[55]", "self": "net:[55]"},  # process 1 cannot be read
    ],
)
def test_a_namespace_shared_with_the_host_is_no_data(plant: Plant, links: dict[str, str]) -> None:
    tree = plant({f"/proc/{pid}/ns/net": f"-> {link}" for pid, link in links.items()})
    with pytest.raises(Unavailable, match=r"^network namespace is shared with the host$"):
        GroupNamespace(tree, lambda: [7])()


def test_counters_of_two_namespaces_are_never_subtracted(plant: Plant) -> None:
    places = [Namespace("a", "/proc/7/net"), Namespace("b", "/proc/8/net")]
    tree = plant(
        {
            "/proc/7/net/snmp": snmp(1, 1),
            "/proc/8/net/snmp": snmp(2, 2),
            "/proc/7/net/dev": dev(eth0=(1, 1)),
            "/proc/8/net/dev": dev(eth0=(2, 2)),
        }
    )
    tcp = Tcp(tree, iter(places).__next__)
    network = Network(tree, iter(places).__next__, hardware_only=False)
    for rates in (
        tcp.rates(tcp.read(), tcp.read(), 1.0),
        network.rates(network.read(), network.read(), 1.0),
    ):
        assert all(isinstance(rate, NoData) for rate in rates.values())
