"""A double of HAProxy's runtime socket and log, for tests without HAProxy.

Its answers are the exact text that HAProxy 2.6 printed to the same commands, framing
hazards included; what it does not know it answers as HAProxy does.  A test of the adapter
sends both the same commands and compares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dial_haproxy.config import NAMES_APART, rules_variable

STATE_HEADER = (
    "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight "
    "srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health "
    "srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord "
    "srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port"
)
STAT_HEADER = (
    "# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,"
    "wredis,status,weight,act,bck,hrsp_5xx,mode,algo,connect,reuse,"
)
STATIC = ("static-rr", "source", "uri", "hdr", "url_param", "hash", "rdp-cookie")


@dataclass(slots=True)
class FakeServer:
    """One server of the fake's backend."""

    configured_weight: int = 1
    weight: int | None = None
    """In force; the configured one when ``None``."""
    op_state: int = 2
    admin_state: int = 0
    check_state: int = 0
    agent_state: int = 0
    backup: bool = False
    in_flight: int = 0
    attempts: int = 0
    retries: int = 0
    errors: int = 0
    reuse: int = 0

    @property
    def in_force(self) -> int:
        """The weight in force."""
        return self.configured_weight if self.weight is None else self.weight


class FakeHAProxy:
    """One process with one backend, on a unix socket.

    Parameters
    ----------
    path
        Where its runtime socket is made.
    service
        Name of the backend.
    servers
        By name; three of weight 1 when not given.
    algorithm
        As ``show stat`` prints it (``unknown`` for random, as 2.6 does).
    level, version
        Of the socket, and of the process.
    deaf
        Servers whose new weight it accepts and forgets.
    with_rules
        Servers that have rules of :func:`dial_haproxy.config.expected_delay`.
    """

    def __init__(
        self,
        path: Path,
        *,
        service: str = "app",
        servers: dict[str, FakeServer] | None = None,
        algorithm: str = "roundrobin",
        level: str = "admin",
        version: str = "2.6.12-1+deb12u4",
        deaf: Iterable[str] = (),
        with_rules: Iterable[str] = (),
    ) -> None:
        self.path = path
        self.service = service
        self.servers = servers or {name: FakeServer() for name in ("s1", "s2", "s3")}
        self.algorithm = algorithm
        self.level = level
        self.version = version
        self.deaf = frozenset(deaf)
        self.with_rules = tuple(with_rules)
        self.pid = 6022
        self.start_time_s = 1_795_212_580
        self.lines: list[str] = []
        """Lines of commands received, in order."""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Open the socket."""
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """Close it, as a process that ended does."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
            self.path.unlink(missing_ok=True)

    def reload(self) -> None:
        """A new process with the weights of the configuration and counters at 0."""
        self.pid += 1
        self.start_time_s += 60
        for server in self.servers.values():
            server.weight = None
            server.attempts = server.retries = server.errors = server.reuse = 0

    def answer(self, command: str) -> str:
        """What HAProxy prints to one command, its end included."""
        match command.split():
            case ["show", "info"]:
                said = (
                    f"Name: HAProxy\nVersion: {self.version}\nRelease_date: 2026/10/17\n"
                    f"Pid: {self.pid}\nUptime: 0d 0h00m10s\nnode: vm\nStopping: 0\n"
                    f"Start_time_sec: {self.start_time_s}\nTainted: 0\n\n"
                )
            case ["show", "cli", "level"]:
                said = f"{self.level}\n\n"
            case ["show", "servers", "state", name]:
                said = self._state() if name == self.service else "Can't find backend.\n\n"
            case ["show", "stat", name, kinds, "-1"]:
                said = self._stat(name, kinds)
            case ["get", "var", name] if self.with_rules and name == rules_variable(self.service):
                names = NAMES_APART.join(self.with_rules)
                said = f"{name}: type=str value=<{names}>\n"  # without a line break of its own
            case ["get", "var", _]:
                said = "Variable not found.\n\n"
            case ["set", "weight", target, weight]:
                said = self._set_weight(target, weight)
            case _:
                said = (
                    "Unknown command, but maybe one of the following ones is a better match:\n"
                    "  quit                                    : disconnect\n\n"
                )
        return said

    def _state(self) -> str:
        rows = [
            f"3 {self.service} {number} {name} 127.0.0.1 {s.op_state} {s.admin_state} {s.in_force} "
            f"{s.configured_weight} 10 1 0 2 {s.check_state} {s.agent_state} "
            "0 0 - 18081 - 0 0 - - 0\n"
            for number, (name, s) in enumerate(self.servers.items(), start=1)
        ]
        return f"1\n{STATE_HEADER}\n{''.join(rows)}\n"

    def _stat(self, name: str, kinds: str) -> str:
        rows = []
        if name in ("-1", "3", self.service):
            if kinds == "6":
                rows = [
                    f"{self.service},{server},0,0,{s.in_flight},1,,{s.attempts},0,0,,0,,{s.errors},"
                    f"0,{s.retries},0,no check,{s.in_force},{int(not s.backup)},{int(s.backup)},"
                    f"0,http,,1,{s.reuse},\n"
                    for server, s in self.servers.items()
                ]
            rows.append(
                f"{self.service},BACKEND,0,0,0,1,999,0,0,0,0,0,,0,0,0,0,UP,3,3,0,0,http,"
                f"{self.algorithm},0,0,\n"
            )
        return f"{STAT_HEADER}\n{''.join(rows)}\n"

    def _set_weight(self, target: str, weight: str) -> str:
        backend, _, name = target.partition("/")
        if self.level != "admin":
            return "Permission denied\n\n"
        if backend != self.service:
            return "No such backend.\n\n"
        if name not in self.servers:
            return "No such server.\n\n"
        if not 0 <= int(weight) <= 256:
            return "Absolute weight can only be between 0 and 256 inclusive.\n\n"
        if self.algorithm in STATIC and int(weight) not in (
            0,
            self.servers[name].configured_weight,
        ):
            return (
                "Backend is using a static LB algorithm and only accepts weights '0%' and "
                "'100%'.\n\n"
            )
        if name not in self.deaf:
            self.servers[name].weight = int(weight)
        return "\n"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode().rstrip("\n")
        self.lines.append(line)
        for command in line.split(";"):
            writer.write(self.answer(command).encode())
        await writer.drain()
        writer.close()


async def send_log(host: str, port: int, lines: bytes) -> None:
    """Write to an adapter's ``tcp`` log as a ring does; returns when it is handed over."""
    _, writer = await asyncio.open_connection(host, port)
    writer.write(lines)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
