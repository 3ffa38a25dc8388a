"""ZooKeeper, controller, brokers and three servers on the loopback addresses of one computer.

Pinot 1.5's jars come from an official distribution (``PINOT_JARS``, a Java classpath such as
``/opt/pinot/lib/*``).  Servers have an address each, for the query log names them by host.  All of
it ends with this process.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from dial.errors import LabError
from dial.ports import free_port
from dial_lab.processes import Children

HERE = Path(__file__).resolve().parent
NAME = "DialPinot"
SERVER_HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
SERVER_PORT = 8098
START_WAIT_S = 90.0

_OPENS = (
    *("java.nio", "sun.nio.ch", "java.lang", "java.lang.reflect", "java.util"),
    *("java.util.concurrent", "jdk.internal.misc"),
)
"""What Pinot's own start script opens, of java.base."""


@dataclass
class Broker:
    """One broker."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    jvm: Sequence[str] = ()
    """Further arguments, such as ``-Ddial.weights=...``."""
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """Where queries go."""
        return f"http://127.0.0.1:{self.port}"


class Cluster:
    """Starts the roles and asks the controller.

    Parameters
    ----------
    jars : Java classpath of Pinot 1.5.
    folder : for data and logs.
    children : who starts programs and ends them.
    plugin : the plugin's jar, put on every broker's classpath.
    """

    def __init__(self, jars: str, folder: Path, children: Children, plugin: Path) -> None:
        self._jars = jars
        self._folder = folder
        self._children = children
        self._plugin = plugin
        self._zookeeper_port = free_port()
        self._controller_port = free_port()
        self.roles: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def controller(self) -> str:
        """Address of Pinot's controller."""
        return f"http://127.0.0.1:{self._controller_port}"

    def start(self, brokers: Sequence[Broker], joins: Mapping[str, Iterable[Path]]) -> None:
        """Start all roles and wait until they have.

        Parameters
        ----------
        brokers : as many as are wanted.
        joins : by host of a server, the control groups it runs in.
        """
        zookeeper = self._folder / "zookeeper.cfg"
        zookeeper.write_text(
            f"dataDir={self._folder / 'zookeeper'}\nclientPortAddress=127.0.0.1\n"
            f"clientPort={self._zookeeper_port}\ntickTime=2000\nmaxClientCnxns=0\n"
        )
        self._run("zookeeper", "zookeeper", str(zookeeper), memory_mb=128)
        self._role("controller", "controller", self._controller(), memory_mb=384)
        for broker in brokers:
            self.start_broker(broker)
        for number, host in enumerate(SERVER_HOSTS):
            self.start_server(host, number, joins.get(host, ()))
        for name in (*(b.name for b in brokers), *(f"server-{h}" for h in SERVER_HOSTS)):
            self.await_role(name)

    def start_broker(self, broker: Broker) -> None:
        """Start one broker, or start it again."""
        http = "pinot.broker.client.access.protocols"
        settings = {
            "pinot.broker.hostname": "127.0.0.1",
            "pinot.broker.client.queryPort": str(broker.port),
            http: "http",
            f"{http}.http.host": "127.0.0.1",
            f"{http}.http.port": str(broker.port),
            **broker.settings,
        }
        self._role(
            broker.name, "broker", self._common() | settings, 384, jvm=broker.jvm, wait=False
        )

    def start_server(self, host: str, number: int, join: Iterable[Path] = ()) -> None:
        """Start one server, or start it again."""
        data = self._folder / f"server-{host}"
        admin = "pinot.server.adminapi.access.protocols"
        settings = {
            "pinot.server.netty.host": host,
            "pinot.server.netty.port": str(SERVER_PORT + number),
            admin: "http",
            f"{admin}.http.host": host,
            f"{admin}.http.port": str(SERVER_PORT + 100 + number),
            "pinot.server.grpc.enable": "false",
            "pinot.server.instance.dataDir": str(data / "data"),
            "pinot.server.instance.segmentTarDir": str(data / "tar"),
        }
        name = f"server-{host}"
        self._role(name, "server", self._common() | settings, 384, join=join, wait=False)

    def add_table(self, name: str, routing: Mapping[str, object], segments: Path) -> None:
        """Make a table with replication 3, upload its segments, and wait until all serve."""
        self.post("/schemas", schema(name))
        self.post("/tables", table_config(name, routing))
        self.upload(name, segments)
        wanted = len(list(segments.glob("*.tar.gz")))
        self.await_true(f"table {name}", lambda: self._online(name) == 3 * wanted)

    def upload(self, name: str, segments: Path) -> None:
        """Give the table segments, or refresh those it has."""
        for file in sorted(segments.glob("*.tar.gz")):
            answer = httpx.post(
                f"{self.controller}/v2/segments",
                params={"tableName": name, "tableType": "OFFLINE"},
                files={"file": (file.name, file.read_bytes())},
                timeout=60.0,
            )
            _checked(answer)

    def rebalance(self, name: str, server: str) -> None:
        """Spread the table's replicas over all servers, without downtime, until one has some."""
        self.post(f"/tables/{name}/rebalance?type=OFFLINE&downtime=false", {})

        def done() -> bool:
            wanted, there = self._states(name, "idealstate"), self._states(name, "externalview")
            return wanted == there and any(server in states for states in there.values())

        self.await_true(f"rebalance of {name}", done)

    def put(self, path: str, body: Mapping[str, object]) -> None:
        """Change what the controller has."""
        _checked(httpx.put(f"{self.controller}{path}", json=body, timeout=30.0))

    def post(self, path: str, body: Mapping[str, object]) -> None:
        """Give the controller something."""
        _checked(httpx.post(f"{self.controller}{path}", json=body, timeout=30.0))

    def make_segments(self, folder: Path, segments: int, rows: int) -> None:
        """Make segments of the table that the queries ask."""
        folder.mkdir()
        (folder / "table.json").write_text(json.dumps(table_config("views", {})))
        (folder / "schema.json").write_text(json.dumps(schema("views")))
        arguments = [folder / "table.json", folder / "schema.json", folder, segments, rows]
        subprocess.run(
            [*self._java(384, ()), str(HERE / "Segments.java"), *map(str, arguments)],
            check=True,
            capture_output=True,
            timeout=120.0,
        )

    def await_true(self, what: str, look: Callable[[], bool]) -> None:
        """Poll, for Pinot has no way to say that it is ready."""
        give_up = time.monotonic() + START_WAIT_S
        while time.monotonic() < give_up:
            self._children.check()
            with suppress(httpx.HTTPError, KeyError):
                if look():
                    return
            time.sleep(0.25)
        raise LabError(f"{what}: not ready after {START_WAIT_S:g} s; logs are in {self._folder}")

    def _online(self, name: str) -> int:
        view = self._states(name, "externalview")
        return sum(state == "ONLINE" for states in view.values() for state in states.values())

    def _states(self, name: str, of: str) -> Mapping[str, Mapping[str, str]]:
        """By segment and server, as wanted (``idealstate``) or as is (``externalview``)."""
        answer = httpx.get(f"{self.controller}/tables/{name}_OFFLINE/{of}", timeout=5.0)
        states: Mapping[str, Mapping[str, str]] = answer.json().get("OFFLINE") or {}
        return states

    def _common(self) -> dict[str, str]:
        return {
            "pinot.cluster.name": NAME,
            "pinot.zk.server": f"127.0.0.1:{self._zookeeper_port}",
            "pinot.multistage.engine.enabled": "false",
        }

    def _controller(self) -> dict[str, str]:
        http = "controller.access.protocols"
        return {
            "controller.helix.cluster.name": NAME,
            "controller.zk.str": f"127.0.0.1:{self._zookeeper_port}",
            "controller.host": "127.0.0.1",
            "controller.port": str(self._controller_port),
            http: "http",
            f"{http}.http.host": "127.0.0.1",
            f"{http}.http.port": str(self._controller_port),
            "controller.data.dir": str(self._folder / "controller"),
            "pinot.multistage.engine.enabled": "false",
        }

    def _role(
        self,
        name: str,
        role: str,
        settings: Mapping[str, str],
        memory_mb: int,
        *,
        jvm: Sequence[str] = (),
        join: Iterable[Path] = (),
        wait: bool = True,
    ) -> None:
        file = self._folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._run(name, role, str(file), memory_mb=memory_mb, jvm=jvm, join=join)
        if wait:
            self.await_role(name)

    def _run(
        self,
        name: str,
        role: str,
        file: str,
        *,
        memory_mb: int,
        jvm: Sequence[str] = (),
        join: Iterable[Path] = (),
    ) -> None:
        (self._folder / f"{name}.log").write_bytes(b"")
        argv = [*self._java(memory_mb, jvm), str(HERE / "Role.java"), role, file]
        self.roles[name] = self._children.start(name, argv, join=join)

    def await_role(self, name: str) -> None:
        """Wait until a role that was begun has started."""
        log = self._folder / f"{name}.log"
        self.await_true(name, lambda: b"ready\n" in log.read_bytes())

    def _java(self, memory_mb: int, jvm: Sequence[str]) -> list[str]:
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS]
        memory = [
            *(f"-Xmx{memory_mb}m", "-Xms64m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC"),
            # The first compiler alone: steady after seconds, where the second goes on for minutes
            # on machines of a third of a core.
            "-XX:TieredStopAtLevel=1",
        ]
        log = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
        return ["java", *memory, *opens, log, *jvm, "-cp", f"{self._plugin}:{self._jars}"]


def schema(name: str) -> dict[str, object]:
    """Views of members' pages."""
    return {
        "schemaName": name,
        "dimensionFieldSpecs": [
            {"name": "member", "dataType": "INT"},
            {"name": "country", "dataType": "STRING"},
        ],
        "metricFieldSpecs": [{"name": "duration_ms", "dataType": "INT"}],
    }


def table_config(name: str, routing: Mapping[str, object]) -> dict[str, object]:
    """Replication 3, no index: queries scan, as a table of ad-hoc queries does."""
    return {
        "tableName": name,
        "tableType": "OFFLINE",
        "segmentsConfig": {"replication": "3", "schemaName": name},
        "tenants": {},
        "tableIndexConfig": {"loadMode": "MMAP"},
        "routing": dict(routing),
        "metadata": {},
    }


def _checked(answer: httpx.Response) -> None:
    if not answer.is_success:
        raise LabError(f"{answer.request.url}: {answer.status_code}: {answer.text[:300]}")
