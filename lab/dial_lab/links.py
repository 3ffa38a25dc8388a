"""A network of an emulated physical machine's own: a VM, its host, and the NIC they share.

Each machine is two network namespaces:

    balancer (root) 10.213.N.1 ======== 10.213.N.2 host 10.213.N.5 -------- 10.213.N.6 VM
                                   NIC, shaped on the                veth
                                   host's side: answers

The tenant's application is in the VM, the neighbour on the host: as on a real hypervisor
they share the NIC, and neither sees the other's packets in its own counters.  (With one
namespace for both, the neighbour's segments stood in the tenant's ``/proc/net/snmp``, where
no guest could see them.)  The host routes; only what leaves the machine is shaped.

To make a neighbour's share a *number*, the NIC is an ``htb`` of two classes that mirrors how
:mod:`dial_lab.topology` shares a CPU: the neighbour's has a cap, and goes first whenever it
has something to send, so that a busy tenant is left exactly the rest: told to take 0.30,
0.70 and 0.85 it took 0.299, 0.700 and 0.848.  Why not one queue for both (``tbf``) and flows
that cap themselves (``iperf3 -b``): TCP divides a queue by flows and by who can wait, so that
beside a saturating tenant (eight flows) a neighbour told to send 27 of 40 Mbit/s got 2 with
four flows and 8 with sixteen.

Three things keep the queue honest:

- the tenant's queue is short (:data:`QUEUE_PACKETS`), as a switch's is: a longer one turns
  losses into seconds of delay;
- segments leave one by one (``gso_max_segs 1``): the offload's bundles of up to 64 kB would
  be shaped as one packet, and a SYN-ACK would wait for all of it;
- congestion control is set, because the host's default may be one that ignores losses.

Everything bears the prefix ``dial-lab``, by which what a crash left is found and removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dial.errors import LabError

PREFIX = "dial-lab-"
"""First letters of every namespace and every interface in the root namespace."""

QUEUE_PACKETS = 128
"""Of full size they are 190 kB: 40 ms of the NIC, twice what eight answers in flight need."""

CONGESTION_CONTROL = "reno"
"""The one that the kernel lets every namespace choose."""

_NAMESPACES = Path("/run/netns")
_INTERFACES = Path("/sys/class/net")
_NAME_BYTES = 15
"""IFNAMSIZ of linux/if.h less its terminator."""
_SEGMENT_BYTES = 1514
_BURST_BYTES = 2 * _SEGMENT_BYTES
_LEAST_BIT_S = 8_000
"""What a class is guaranteed; htb has no 0."""


@dataclass(frozen=True, slots=True)
class Link:
    """The network of one machine.

    Attributes
    ----------
    machine
        Its name, which ends in its number: the third byte of its addresses.
    nic_bit_s
        What its NIC sends, in bit/s.
    """

    machine: str
    nic_bit_s: int

    def __post_init__(self) -> None:
        """Check the name.

        Raises
        ------
        LabError
            If it is too long for an interface, or has no number of 0 to 255.
        """
        most = _NAME_BYTES - len(PREFIX)
        number = self._number
        if len(self.machine) > most or not number or int(number) > 255:
            raise LabError(
                f"machine {self.machine}: its link needs a name of {most} characters at most "
                "that ends in a number of 0 to 255"
            )

    @property
    def _number(self) -> str:
        return self.machine[len(self.machine.rstrip("0123456789")) :]

    @property
    def wire(self) -> str:
        """The balancer's end of the NIC, in the root namespace."""
        return f"{PREFIX}{self.machine}"

    @property
    def host(self) -> str:
        """The namespace of the physical machine: the neighbour's."""
        return f"{PREFIX}{self.machine}-host"

    @property
    def vm(self) -> str:
        """The namespace of the tenant's VM."""
        return f"{PREFIX}{self.machine}-vm"

    @property
    def balancer_address(self) -> str:
        """Where the balancer's side is reached from the machine."""
        return self._address(1)

    @property
    def host_address(self) -> str:
        """Where the physical machine itself is reached from the balancer's side."""
        return self._address(2)

    @property
    def vm_address(self) -> str:
        """Where the VM is reached from the balancer's side."""
        return self._address(6)

    def _address(self, last: int) -> str:
        return f"10.213.{int(self._number)}.{last}"

    def build(self) -> None:
        """Make namespaces, wires, routes and the shaped NIC.

        Raises
        ------
        LabError
            With the program's own words, if the kernel refuses.
        """
        for namespace in (self.host, self.vm):
            run("ip", "netns", "add", namespace)
            _in(namespace, "ip", "link", "set", "lo", "up")
        run(*("ip", "link", "add", self.wire, "type", "veth"), *("peer", "nic", "netns", self.host))
        _in(
            self.host,
            *("ip", "link", "add", "vm", "type", "veth"),
            *("peer", "eth0", "netns", self.vm),
        )
        run("ip", "address", "add", f"{self.balancer_address}/30", "dev", self.wire)
        run("ip", "link", "set", self.wire, "up")
        for namespace, device, last in (
            (self.host, "nic", 2),
            (self.host, "vm", 5),
            (self.vm, "eth0", 6),
        ):
            _in(namespace, "ip", "address", "add", f"{self._address(last)}/30", "dev", device)
            _in(namespace, "ip", "link", "set", device, "up", "gso_max_segs", "1")
            control = f"net.ipv4.tcp_congestion_control={CONGESTION_CONTROL}"
            _in(namespace, "sysctl", "-qw", control)
        _in(self.host, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        _in(self.vm, "ip", "route", "add", "default", "via", self._address(5))
        run("ip", "route", "add", f"{self._address(4)}/30", "via", self._address(2))
        self._shape()

    def _shape(self) -> None:
        nic = self.nic_bit_s
        self._tc("qdisc", "add", "root", "handle", "1:", "htb", "default", "20")
        self._tc("class", "add", "parent", "1:", "classid", "1:1", *_htb(nic, nic))
        fg = ("parent", "1:1", "classid", "1:10", *_htb(_LEAST_BIT_S, nic), "prio", "1")
        self._tc("class", "add", *fg)
        self.cap_neighbour(1.0, verb="add")
        for leaf in ("1:10", "1:20"):
            self._tc("qdisc", "add", "parent", leaf, "pfifo", "limit", str(QUEUE_PACKETS))
        match = ("u32", "match", "ip", "src", f"{self.vm_address}/32", "flowid", "1:10")
        self._tc("filter", "add", "parent", "1:", "protocol", "ip", *match)

    def cap_neighbour(self, rho_bg: float, *, verb: str = "change") -> None:
        """Let the neighbour send ``rho_bg`` of the NIC's rate at most, 0 < rho_bg <= 1."""
        bit_s = max(_LEAST_BIT_S, round(rho_bg * self.nic_bit_s))
        bg = ("parent", "1:1", "classid", "1:20", *_htb(bit_s, bit_s), "prio", "0")
        self._tc("class", verb, *bg)

    def _tc(self, what: str, verb: str, *rest: str) -> None:
        _in(self.host, "tc", what, verb, "dev", "nic", *rest)


def _htb(least_bit_s: int, most_bit_s: int) -> tuple[str, ...]:
    burst = f"{_BURST_BYTES}b"
    return (
        *("htb", "rate", f"{least_bit_s}bit", "ceil", f"{most_bit_s}bit"),
        *("burst", burst, "cburst", burst, "quantum", str(_SEGMENT_BYTES)),
    )


def inside(namespace: str) -> tuple[str, ...]:
    """Start of a command line that runs the rest of it in ``namespace``, in the same process."""
    return ("nsenter", f"--net={_NAMESPACES / namespace}", "--")


@contextmanager
def links(wanted: Iterable[Link]) -> Iterator[None]:
    """Build links, after clearing away what a crashed lab left; remove them at exit.

    As with the machines themselves, only one lab at a time may do this.

    Raises
    ------
    LabError
        If the kernel refuses.
    """
    remove_all()
    try:
        for link in wanted:
            link.build()
        yield
    finally:
        remove_all()


def stale() -> tuple[str, ...]:
    """Namespaces and interfaces of the lab that exist now."""
    return (*_ours(_NAMESPACES), *_ours(_INTERFACES))


def remove_all() -> None:
    """Remove every namespace and interface of the lab, and end what runs in them."""
    for namespace in _ours(_NAMESPACES):
        for pid in run("ip", "netns", "pids", namespace).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    # Removing one end of a veth removes the other at once; a namespace's end goes later.
    for interface in _ours(_INTERFACES):
        run("ip", "link", "delete", interface)
    for namespace in _ours(_NAMESPACES):
        run("ip", "netns", "delete", namespace)


def _ours(directory: Path) -> list[str]:
    if not directory.is_dir():
        return []
    return sorted(entry.name for entry in directory.iterdir() if entry.name.startswith(PREFIX))


def _in(namespace: str, *argv: str) -> str:
    return run(*inside(namespace), *argv)


def run(*argv: str) -> str:
    """Run a program and return what it printed.

    Raises
    ------
    LabError
        With the program's own words, if it fails; if it is not installed.
    """
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]}: not installed; `make setup` installs it") from error
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip() or f"code {done.returncode}"
        raise LabError(f"{' '.join(argv)}: {said}")
    return done.stdout
