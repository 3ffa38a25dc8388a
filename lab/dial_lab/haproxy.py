"""A real HAProxy for one block: configuration, start, and its own view of itself.

Fresh for each block, so that no policy inherits another's connections or counters.  No
health checks: a check that fails on a busy server would take it out, and then the policy
under test is not what is measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from dial.errors import BalancerError, LabError
from dial_haproxy.config import Rules, expected_delay, snippet
from dial_haproxy.options import Address as SocketAddress
from dial_haproxy.runtime import RuntimeClient
from dial_lab.addresses import Address, wait_for_port
from dial_lab.loadgen import SERVED_BY
from dial_lab.processes import Children

SERVICE = "app"
"""Name of the pool."""

WEIGHT = 100
"""Configured weight of every server: in the middle of 1..256, so that shares can go both ways."""

_TOLD_S = 5.0
"""An answer takes milliseconds."""

RIVALS = Path(__file__).with_name("rivals")
"""Policies that HAProxy does not have, for comparison; ``rival.lua`` says how they run."""

_IN_BACKEND = """\
    use-server %[lua.rival] if TRUE
    http-response lua.rival_done"""


@dataclass(frozen=True, slots=True)
class Balancer:
    """Where one HAProxy is reached."""

    port: int
    socket: Path

    def adapter_settings(self, log_port: int, *, new_connections: bool) -> str:
        """The ``[adapter]`` table of its controller, which takes the log on ``log_port``."""
        # A JSON string is a TOML basic string too, with the same escapes.
        return f"""\
[adapter]
name = "haproxy"

[adapter.options]
socket = {json.dumps(str(self.socket))}
log = "tcp://127.0.0.1:{log_port}"
new_connections = {json.dumps(new_connections)}
"""


def socket_in(private: Path) -> Path:
    """Where its runtime socket is."""
    return private / "haproxy.sock"


def tell(socket: Path, server: str, left: float) -> None:
    """Tell a rival what a server can truly serve, as a part of what it serves alone.

    Raises
    ------
    LabError
        If HAProxy does not take it.
    """
    command = f"rival left {server} {left:.4f}"
    client = RuntimeClient(SocketAddress("unix", path=str(socket)), _TOLD_S)
    try:
        (said,) = asyncio.run(client.ask([command]))
    except BalancerError as error:
        raise LabError(f"haproxy: {error}") from error
    if said.strip():
        raise LabError(f"haproxy: {command}: {said}")


def config(
    balance: str,
    servers: Mapping[str, Address],
    balancer: Balancer,
    log_port: int | None = None,
    *,
    new_connections: bool = False,
    rival: str = "",
    rival_variables: Mapping[str, str] = MappingProxyType({}),
    by_delay: bool = False,
) -> str:
    """The configuration file.

    Parameters
    ----------
    balance
        The argument of ``balance``.
    servers
        Where each listens, by name.
    balancer
        Where it is to be reached.
    log_port
        Where a controller listens for the log; without one nothing is logged, so that
        rivals do not pay for what they do not use.
    new_connections
        Whether each request gets a connection of its own to its server.
    rival
        Which of :data:`RIVALS` chooses instead of ``balance``, or sets its weights, if any.
    rival_variables
        What else it reads from its environment, by name without ``RIVAL_``.
    by_delay
        Whether requests go where they are to be served soonest, before ``balance`` is asked.
    """
    rules = expected_delay(SERVICE, list(servers), balance=balance) if by_delay else Rules((), ())
    dial = snippet(socket=str(balancer.socket), log_port=log_port or 0)
    lines = "".join(
        f"    server {name} {address.host}:{address.port} weight {WEIGHT}\n"
        for name, address in servers.items()
    )
    return f"""\
global
    maxconn 8000
    nbthread 1
{dial.in_global}
{_lines(rules.in_global)}
{_in_global(rival, rival_variables) if rival else ""}
{dial.section if log_port else ""}
defaults
    mode http
    timeout connect 10s
    timeout client 120s
    timeout server 120s
    timeout queue 120s

frontend www
    bind 127.0.0.1:{balancer.port}
{dial.in_frontend if log_port else ""}
    http-response set-header {SERVED_BY} %s
    default_backend {SERVICE}

backend {SERVICE}
    balance {balance}
{"    option http-server-close" if new_connections else ""}
{"    http-reuse never" if new_connections else ""}
{_IN_BACKEND if rival else ""}
{_lines(rules.in_backend)}
{lines}"""


def _lines(statements: Iterable[str]) -> str:
    return "\n".join(f"    {statement}" for statement in statements)


def _in_global(rival: str, more: Mapping[str, str]) -> str:
    variables = {"": rival, "_RULES": str(RIVALS), "_SERVICE": SERVICE}
    variables |= {f"_{name}": value for name, value in more.items()}
    lines = "".join(f"    setenv RIVAL{name} {value}\n" for name, value in variables.items())
    return f"{lines}    lua-load-per-thread {RIVALS / 'rival.lua'}"


def start(
    children: Children,
    directory: Path,
    text: str,
    balancer: Balancer,
    cores: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Check the configuration, start HAProxy in the foreground, wait until it listens.

    Raises
    ------
    LabError
        With HAProxy's own words, if it refuses the configuration or does not come up.
    """
    path = directory / "haproxy.cfg"
    path.write_text(text, encoding="utf-8")
    try:
        checked = subprocess.run(
            ["haproxy", "-c", "-f", path], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise LabError("haproxy: not installed; `make setup` installs it") from error
    if checked.returncode != 0:
        raise LabError(
            f"haproxy refuses {path}: {checked.stderr.strip() or checked.stdout.strip()}"
        )
    process = children.start("haproxy", ["haproxy", "-db", "-f", str(path)], cores=cores)
    wait_for_port(Address("127.0.0.1", balancer.port), children)
    return process
