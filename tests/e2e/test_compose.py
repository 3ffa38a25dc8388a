"""What ``docker-compose.yml`` starts in its profile ``lab``, started without containers.

The same configurations, commands and addresses on a machine of its own (:mod:`machine`); a
tenant's core is given by ``taskset`` where a container has a ``cpuset``.  Images are not built.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.distributions import ROOT

from .machine import Machine, until

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
    "services"
]
APPLICATION = "/opt/lab/app.py --host 0.0.0.0 --port 8080"
"""The lab application's image: its CMD, behind ``python``."""


def address(name: str) -> str:
    return str(SERVICES[name]["networks"]["lab"]["ipv4_address"])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """With the files where the containers have them."""
    given = {key: value for key, value in os.environ.items() if not key.startswith("DIAL_")}
    own = {"DIAL_API__TOKEN": "lab", "DIAL_TOKEN": "lab", "NO_COLOR": "1"}
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    addresses = [service for service in SERVICES if "ipv4_address" in str(SERVICES[service])]
    machine = Machine(tmp_path, map(address, addresses), given | own | {"PATH": path})
    try:
        code, out = machine.run(
            f"mkdir -p /etc/dial /opt/lab && install -d -m 700 /var/lib/dial"
            f" && cp {ROOT}/deploy/compose/dial.toml /etc/dial/"
            f" && cp {ROOT}/lab/dial_lab/app.py {ROOT}/deploy/compose/client.py /opt/lab/"
        )
        assert code == 0, out
        yield machine
    finally:
        machine.close()


def weights(machine: Machine) -> dict[str, int]:
    """In force, where the controller knows T_x of all backends and what to expect of it."""
    code, out = machine.run("dial status --json")
    rows = json.loads(out)["backends"] if code == 0 else []
    known = [row for row in rows if isinstance(row["expected_t_x_ms"], float)]
    return {row["name"]: row["weight"] for row in known} if len(known) == 3 else {}


def test_weights_move_away_from_the_tenant_who_has_the_neighbour(
    machine: Machine, tmp_path: Path
) -> None:
    python = sys.executable
    # One network for all, so that nobody may listen on every address of it.
    cfg = tmp_path / "haproxy.cfg"
    here = f"bind {address('haproxy')}:8080"
    shipped = (ROOT / "deploy" / "compose" / "haproxy.cfg").read_text()
    assert "bind :8080" in shipped
    cfg.write_text(shipped.replace("bind :8080", here))
    image = (ROOT / "deploy" / "containers" / "lab-app.Containerfile").read_text()
    assert json.dumps(["python", *APPLICATION.split()]) in image
    machine.start(f"exec haproxy -db -f {cfg}", tmp_path / "haproxy.log")
    for number in (1, 2, 3):
        tenant, agent = SERVICES[f"tenant-{number}"], SERVICES[f"agent-{number}"]
        pid_file = tmp_path / f"tenant-{number}.pid"
        application = APPLICATION.replace("0.0.0.0", address(f"tenant-{number}"))
        machine.start(
            f"echo $$ > {pid_file}; exec taskset -c {tenant['cpuset']} {python} {application}",
            tmp_path / f"tenant-{number}.log",
        )
        until(pid_file.exists, f"tenant {number}")
        # In the tenant's pid namespace its application is process 1.
        command = agent["command"].replace("--pid 1", f"--pid $(cat {pid_file})")
        machine.start(f"exec dial agent {command}", tmp_path / f"agent-{number}.log")
    machine.start("exec dial controller --config /etc/dial/dial.toml", tmp_path / "controller.log")
    machine.start(f"exec dial {SERVICES['watchdog']['command']}", tmp_path / "watchdog.log")
    machine.start(f"exec {SERVICES['client']['command']}", tmp_path / "client.log")
    until(lambda: weights(machine), "all tenants learnt")
    assert weights(machine) == {"tenant-1": 100, "tenant-2": 100, "tenant-3": 100}

    neighbour = SERVICES["neighbour"]
    machine.start(
        f"exec taskset -c {neighbour['cpuset']} {shlex.join(neighbour['command'])}",
        tmp_path / "neighbour.log",
    )
    until(lambda: weights(machine).get("tenant-1", 100) <= 70, "load moved away from tenant-1")
    assert min(weights(machine)[name] for name in ("tenant-2", "tenant-3")) >= 100
