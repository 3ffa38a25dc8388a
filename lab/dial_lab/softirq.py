"""A flood to one service of a VM slows another one: the scenario ``softirq``.

As in Iron (NSDI 2018, 2.3) two services have half of a core each and use it up.  The *victim*
computes.  The *sink* computes as well in the baseline; else it receives UDP packets, as many as
one sender on another core gets out, without and with ``dial agent --net-charge-quotas``.  The
penalty factor is the victim's time for its work over that of the baseline: the kernel processes
the sink's packets on the core that both share, in the context of whoever runs.

Iron's sender is another computer.  Ours would slow the victim by what two cores of one processor
share, so it sends in the baseline too, and its packets are dropped on its own side of the wire.
Arms take turns, several times, and the penalty is the median of the rounds: a computer that others
use as well is faster and slower within minutes.

The packets come from a network namespace over a veth pair; receive packet steering puts their
processing on the services' core, where a NIC's interrupts would be.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from dial.bpf import BpfError
from dial.errors import LabError
from dial.netcharge.ingress import Ingress
from dial.types import Cause
from dial_lab.addresses import Address, free_ports
from dial_lab.arrivals import draw
from dial_lab.cgroups import PREFIX, Cgroups
from dial_lab.one_vm import serve, start_agent
from dial_lab.processes import Children
from dial_lab.told import AFTER_S, LEARN_S, Told, Vm, watch
from dial_lab.topology import (
    MACHINE_WEIGHT,
    exclusive,
    host_cgroups,
    private_directory,
    remove_all,
)

ARMS = ("baseline", "flooded", "charged")
ROUNDS = 3
SHARE_CORES = 0.5
PORT = 5001

_VM = f"{PREFIX}vm"
_PERIOD_US = 10_000
_SETTLE_S = 4.0
_LOAD, _WEB_CPU_US = 0.3, 2000.0
"""Of the web service, where there is one: part of the VM, and CPU time of a request."""
_NAMESPACE = "dial-lab-flood"
_DEVICE, _PEER = "dl-sink", "dl-flood"
_ADDRESS, _FROM = "10.231.77.1", "10.231.77.2"

_WORK = """
import time
passes, due = 0, 0.0
while True:
    for _ in range(2000):
        passes += 1
    now = time.monotonic()
    if now >= due:
        print(passes, now, flush=True)
        due = now + 0.1
"""

_SINK = f"""
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("{_ADDRESS}", {PORT}))
while True:
    receiver.recv(2048)
"""

_FLOOD = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(("{_ADDRESS}", {PORT}))
packet = bytes(64)
while True:
    try:
        sender.send(packet)
    except ConnectionRefusedError:
        pass
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One arm.

    Attributes
    ----------
    passes_per_s
        The victim's work.
    packets_per_s
        That came in at the VM's device.
    """

    passes_per_s: float
    packets_per_s: float


def execute(
    seconds: float, arms: Sequence[str] = ARMS, rounds: int = ROUNDS
) -> list[dict[str, Outcome]]:
    """Run every arm in turn, ``rounds`` times.

    Raises
    ------
    LabError
        If the VM cannot be built here, or a program ends by itself.
    """
    cgroups = host_cgroups()
    *others, core = sorted(os.sched_getaffinity(0))
    if not others:
        raise LabError("the sender needs a core of its own; this computer has one for all")
    outcomes: list[dict[str, Outcome]] = [{} for _ in range(rounds)]
    with exclusive(), private_directory() as private, _link(core):
        for number, arm in product(range(rounds), arms):
            place = private / f"{number}-{arm}"
            place.mkdir()
            remove_all(cgroups)
            try:
                with Children(place) as children, _dropping(arm == "baseline"):
                    _build(arm, cgroups, children, place, core=core, other=others[-1])
                    time.sleep(_SETTLE_S)
                    before = _packets()
                    time.sleep(seconds)
                    children.check()
                    packets_per_s = (_packets() - before) / seconds
                    outcomes[number][arm] = Outcome(
                        _rate(place / "victim.log", seconds), packets_per_s
                    )
            finally:
                remove_all(cgroups)
    return outcomes


def as_json(rounds: Sequence[Mapping[str, Outcome]]) -> dict[str, Any]:
    """The report: every round, and the penalty factors, each the median of the rounds'."""
    report: dict[str, Any] = {
        "rounds": [{name: asdict(each) for name, each in of.items()} for of in rounds]
    }
    if all("baseline" in of for of in rounds):
        report["penalty"] = {
            name: median(of["baseline"].passes_per_s / of[name].passes_per_s for of in rounds)
            for name in rounds[0]
            if name != "baseline"
        }
    return report


def _build(
    arm: str, cgroups: Cgroups, children: Children, place: Path, *, core: int, other: int
) -> None:
    cgroups.create(_VM)
    cgroups.set_weight(_VM, MACHINE_WEIGHT)
    for name, program in (("victim", _WORK), ("sink", _WORK if arm == "baseline" else _SINK)):
        cgroups.create(f"{_VM}/{name}")
        cgroups.set_quota(f"{_VM}/{name}", SHARE_CORES * _PERIOD_US, _PERIOD_US)
        children.start(
            name,
            [sys.executable, "-I", "-S", "-c", program],
            cores=[core],
            join=cgroups.procs_files(f"{_VM}/{name}"),
        )
    if arm == "charged":
        settings = place / "charge.toml"
        settings.write_text(
            f'subtree = "{_VM}"\njournal = "{place}/journal"\ndevice = "{_DEVICE}"\n'
            f"[services.victim]\n[services.sink]\nports = [{PORT}]\n"
        )
        arguments = ("--net-charge", "--net-charge-quotas", str(settings))
        start_agent(children, place, arguments, [other])
    _flood(children, other)


def told(seconds: float, seed: int) -> Told:
    """What a controller says of a VM whose web service stands beside a sink that is flooded.

    Raises
    ------
    LabError
        As :func:`execute`.
    """
    cgroups = host_cgroups()
    *others, core = sorted(os.sched_getaffinity(0))
    if not others:
        raise LabError("the sender needs a core of its own; this computer has one for all")
    address, rate_per_s = Address("127.0.0.1", free_ports(1)[0]), 2.0 * SHARE_CORES * _LOAD
    with exclusive(), private_directory() as place, _link(core):
        remove_all(cgroups)
        try:
            with Children(place) as children:
                cgroups.create(_VM)
                cgroups.set_quota(_VM, 2.0 * SHARE_CORES * _PERIOD_US, _PERIOD_US)
                for name in ("web", "sink"):
                    cgroups.create(f"{_VM}/{name}")
                serve(children, address, core, cgroups.procs_files(f"{_VM}/web"))
                children.start(
                    "sink",
                    [sys.executable, "-I", "-S", "-c", _SINK],
                    cores=[core],
                    join=cgroups.procs_files(f"{_VM}/sink"),
                )

                def disturb() -> Callable[[], None]:
                    process = _flood(children, others[-1])
                    return lambda: children.stop(process)

                vm = Vm(
                    address,
                    draw(
                        seed,
                        0,
                        rate_per_s * 1e6 / _WEB_CPU_US,
                        duration_s=LEARN_S + seconds + AFTER_S,
                        mean_cost=_WEB_CPU_US,
                    ),
                    ("--cgroup", _VM, "--net-charge"),
                    disturb,
                )
                return watch(vm, Cause.SOFTIRQ, children, place, seconds=seconds, cores=others)
        finally:
            remove_all(cgroups)


def _flood(children: Children, core: int) -> subprocess.Popen[bytes]:
    return children.start(
        "flood",
        [
            *("nice", "-n", "5", "ip", "netns", "exec", _NAMESPACE),
            *(sys.executable, "-I", "-S", "-c", _FLOOD),
        ],
        cores=[core],
    )


@contextmanager
def _dropping(drops: bool) -> Iterator[None]:
    """Drop all packets to the sink in the device's driver, on the sender's core."""
    if not drops:
        yield
        return
    try:
        ingress = Ingress(_DEVICE, {"sink": [PORT]})
    except BpfError as error:
        raise LabError(f"packets cannot be dropped at {_DEVICE}: {error}") from error
    ingress.close_for(["sink"])
    try:
        yield
    finally:
        ingress.close()


@contextmanager
def _link(core: int) -> Iterator[None]:
    """The way that packets come: a veth pair whose near end is processed on ``core``."""
    _unlink()
    try:
        _run("ip", "netns", "add", _NAMESPACE)
        _run(
            *("ip", "link", "add", _DEVICE, "type", "veth"),
            *("peer", "name", _PEER, "netns", _NAMESPACE),
        )
        _run("ip", "addr", "add", f"{_ADDRESS}/24", "dev", _DEVICE)
        _run("ip", "link", "set", _DEVICE, "up")
        _run("ip", "-n", _NAMESPACE, "addr", "add", f"{_FROM}/24", "dev", _PEER)
        _run("ip", "-n", _NAMESPACE, "link", "set", _PEER, "up")
        steering = Path(f"/sys/class/net/{_DEVICE}/queues/rx-0/rps_cpus")
        steering.write_text(f"{1 << core:x}", encoding="ascii")
        yield
    finally:
        _unlink()


def _unlink() -> None:
    for command in (("ip", "link", "del", _DEVICE), ("ip", "netns", "del", _NAMESPACE)):
        subprocess.run(command, check=False, capture_output=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")


def _packets() -> int:
    return int(Path(f"/sys/class/net/{_DEVICE}/statistics/rx_packets").read_text())


def _rate(log: Path, seconds: float) -> float:
    """Passes a second over the last ``seconds`` of a log."""
    lines = [line.split() for line in log.read_text().splitlines()]
    # The last line may be half written.
    points = [(float(line[1]), int(line[0])) for line in lines[:-1]]
    end_s, end = points[-1]
    begin_s, begin = next(point for point in points if point[0] >= end_s - seconds)
    return (end - begin) / (end_s - begin_s)
