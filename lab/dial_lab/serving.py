"""A service under load: what a run's block and a session start alike, on machines that are there.

A balancer before the tenant's applications, where a policy has one also a controller and an
agent in each VM, and the load generator.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dial.errors import LabError
from dial_lab import controlled, envoy, haproxy
from dial_lab.addresses import Address, free_ports, wait_for_port
from dial_lab.arrivals import Swing
from dial_lab.controlled import Control
from dial_lab.guests import Guest
from dial_lab.policies import Policy
from dial_lab.processes import Children
from dial_lab.resources import Cost
from dial_lab.topology import Machine

HEAD_START_S = 1.0
"""From starting the generator to its first request: Python and numpy have to load."""

WARM_UP_S = 3.0
"""Load that counts nowhere, before the first quiet phase: connections open, caches fill."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The tenant's applications."""

    machines: tuple[Machine, ...]
    addresses: Mapping[str, Address]
    """Where the application of each machine listens."""
    cost: Cost
    """What requests ask of them."""
    harness_cores: tuple[int, ...]
    """For everything that is not on a machine."""
    percentile: float
    """The x of T_x."""
    guests: Mapping[str, Guest] = field(default_factory=dict)
    """Machines whose tenant has a kernel of its own, by name."""
    memory: Path | None = None
    """Where controllers keep what they learn, each policy's for its next one; forgotten if None."""


@dataclass(frozen=True, slots=True)
class Load:
    """Which requests are offered; see :func:`dial_lab.arrivals.draw`."""

    seed: int
    stream: int
    rate_per_s: float
    duration_s: float
    swings: Sequence[Swing] = ()


@dataclass(frozen=True, slots=True)
class Front:
    """A balancer that serves."""

    port: int
    control: Control | None
    """Its controller, where the policy has one."""
    told: Path | None = None
    """Socket by which a rival of ours is told what a server can serve, where there is one."""


def start_front(
    children: Children, pool: Pool, policy: Policy, directory: Path, private: Path
) -> Front:
    """Start a fresh balancer and, if the policy wants one, a controller with its agents.

    Returns when the controller has a sample of every agent.

    Parameters
    ----------
    children
        Whose programs they become.
    pool
        What is balanced.
    policy
        How requests are spread.
    directory
        For configuration and recording.
    private
        For sockets and tokens.

    Raises
    ------
    LabError
        If one of them does not come up.
    """
    port, api_port, feed_port = free_ports(3)
    start = _start_envoy if policy.lb == "envoy" else _start_haproxy
    adapter = start(children, pool, policy, directory, private, port=port, feed_port=feed_port)
    if policy.interval_s is None:
        wait_for_port(Address(controlled.LOOPBACK, port), children)
        return Front(port, None, haproxy.socket_in(private) if policy.rival else None)
    control = controlled.prepare(directory, private, api_port, _api_host(pool))
    controlled.start(
        children,
        policy,
        control,
        adapter,
        machines=pool.machines,
        cores=pool.harness_cores,
        percentile=pool.percentile,
        guests=pool.guests,
        memory=_memory_of(pool, policy),
    )
    wait_for_port(Address(controlled.LOOPBACK, port), children)
    controlled.await_samples(children, control, policy.interval_s)
    return Front(port, control)


def _start_haproxy(
    children: Children,
    pool: Pool,
    policy: Policy,
    directory: Path,
    private: Path,
    *,
    port: int,
    feed_port: int,
) -> str:
    """Start it; returns the ``[adapter]`` table of a controller that takes the log there."""
    balancer = haproxy.Balancer(port, haproxy.socket_in(private))
    new_connections = pool.cost.new_connections
    text = haproxy.config(
        policy.balance,
        pool.addresses,
        balancer,
        feed_port if policy.controlled else None,
        new_connections=new_connections,
        rival=policy.rival,
        rival_variables=_variables(pool, policy) if policy.rival else {},
        by_delay=policy.by_delay,
    )
    haproxy.start(children, directory, text, balancer, pool.harness_cores)
    return balancer.adapter_settings(feed_port, new_connections=new_connections)


def _start_envoy(
    children: Children,
    pool: Pool,
    policy: Policy,
    directory: Path,
    private: Path,  # noqa: ARG001 - it has neither socket nor token
    *,
    port: int,
    feed_port: int,
) -> str:
    """Start it; returns the ``[adapter]`` table of a controller that it asks there."""
    balancer = envoy.Balancer(port, *free_ports(1))
    text = envoy.config(
        policy.lb_policy,
        pool.addresses,
        balancer,
        feed_port if policy.controlled else None,
        new_connections=pool.cost.new_connections,
    )
    envoy.start(children, directory, text, pool.harness_cores)
    return balancer.adapter_settings(pool.addresses, feed_port)


def start_generator(
    children: Children,
    pool: Pool,
    load: Load,
    *,
    port: int,
    start: float,
    out: Path,
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start the load generator.

    Parameters
    ----------
    children
        Whose program it becomes.
    pool
        Names of the backends and cost of requests.
    load
        What is offered.
    port
        The balancer's.
    start
        Moment that the load counts from, on the monotonic clock; ``HEAD_START_S`` from now
        at least.
    out
        File for the results.
    stdout
        Where its line a second goes; to its log unless given.
    """
    options = {
        "port": port,
        "backends": ",".join(pool.addresses),
        "seed": load.seed,
        "stream": load.stream,
        "rate": load.rate_per_s,
        "duration": load.duration_s,
        "percentile": pool.percentile,
        "cost": json.dumps(asdict(pool.cost)),
        "swings": json.dumps([asdict(swing) for swing in load.swings]),
        "start": start,
        "out": out,
    }
    argv = [sys.executable, "-m", "dial_lab.loadgen"]
    argv += [f"--{name}={value}" for name, value in options.items()]
    return children.start("loadgen", argv, cores=pool.harness_cores, stdout=stdout, finite=True)


def await_end(generator: subprocess.Popen[bytes], within_s: float) -> None:
    """Wait until the load generator has had, or given up, its last answer.

    Raises
    ------
    LabError
        If it goes on for longer.
    """
    try:
        generator.wait(timeout=within_s)
    except subprocess.TimeoutExpired:
        raise LabError(f"loadgen: still running {within_s:g} s after the load's end") from None


def _variables(pool: Pool, policy: Policy) -> dict[str, str]:
    """What rivals read from their environment: see each of them."""
    found = {"SETTING": policy.setting} if policy.setting else {}
    memory = _memory_of(pool, policy) if policy.explores_s else None
    if memory is not None:
        found["MEMORY"] = str(memory / "curves")
    for machine in pool.machines:
        found[f"USAGE_{machine.name}"] = str(machine.cgroups.usage_file(machine.fg))
        found[f"CORES_{machine.name}"] = f"{machine.usual_cores:.4g}"
    return found


def _memory_of(pool: Pool, policy: Policy) -> Path | None:
    if pool.memory is None:
        return None
    memory = pool.memory / policy.name
    memory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return memory


def _api_host(pool: Pool) -> str:
    """Where agents reach the controller: in guests, the end of any guest's network will do."""
    return next((guest.host_address for guest in pool.guests.values()), controlled.LOOPBACK)
