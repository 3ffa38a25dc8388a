"""The units' own command lines, run as systemd would, on a machine without it.

Paths, credentials, directories, variables and the mask are those of the unit, and no capability
is left.  What the kernel refuses at systemd's word besides (system calls, parts of the file
system) is judged by ``systemd-analyze`` alone, in ``tests/deploy``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .machine import Machine, until
from .somebody import HAPROXY_CFG, SERVERS

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
DIAL = Path(sys.executable).parent

_SET_UP = f"""
set -e
mkdir -p /opt/dial /etc/dial
ln -s {DIAL} /opt/dial/bin
echo the-token-of-this-test > /etc/dial/token
chmod 600 /etc/dial/token
echo 'DIAL_AGENT_OPTIONS=--controller http://127.0.0.1:9180 --backend web1' > /etc/dial/agent.env
cd /etc/haproxy
dial check haproxy.cfg --service shop --diff | patch haproxy.cfg
haproxy -W -D -p /run/haproxy.pid -f haproxy.cfg
(
  echo 'mode = "enforce"'
  dial check haproxy.cfg --service shop --toml
  echo '[lease]'
  echo 'path = "/var/lib/dial/shop.lease"'
) > /etc/dial/shop.toml
"""


def settings(name: str) -> dict[str, list[str]]:
    """Of the unit's section ``[Service]``, for the instance ``shop``."""
    text = (UNITS / name).read_text().split("[Service]\n")[1].split("\n[")[0]
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(value.replace("%i", "shop"))
    return found


def as_systemd_would(name: str) -> str:
    """Lines of shell that do what the unit says, up to its program."""
    unit = settings(name)
    lines = ["set -e", f"echo $$ > /run/{name}.pid"]
    for kind, place in ("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib"):
        for directory in unit.get(kind, []):
            mode = unit[f"{kind}Mode"][0]
            lines.append(f"install -d -m {mode} {place}/{directory}")
    lines.append(f"export CREDENTIALS_DIRECTORY=/run/credentials/{name}")
    lines.append("install -d -m 700 $CREDENTIALS_DIRECTORY")
    for credential in unit.get("LoadCredential", []):
        to, path = credential.split(":")
        lines.append(f"install -m 400 {path} $CREDENTIALS_DIRECTORY/{to}")
    lines += [f"export {each}" for each in unit.get("Environment", [])]
    # Unlike the shell's, a value goes to the end of its line.
    for path in unit.get("EnvironmentFile", []):
        lines.append(f'while IFS== read -r name value; do export "$name=$value"; done < {path}')
    lines += [f"umask {unit['UMask'][0]}", *unit.get("ExecStartPre", [])]
    (start,) = unit["ExecStart"]
    # systemd splits $WORDS at blanks as the shell does.
    lines.append(f"exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs {start}")
    return "\n".join(lines)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Somebody's HAProxy, and DIAL in /opt/dial."""
    path = f"{DIAL}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    addresses = ["10.0.0.1", *(host for host, _ in SERVERS.values())]
    machine = Machine(tmp_path, addresses, {"PATH": path, "NO_COLOR": "1"})
    try:
        (tmp_path / "haproxy.cfg").write_text(HAPROXY_CFG)
        site = f"exec {sys.executable} {Path(__file__).with_name('somebody.py')} {tmp_path}"
        machine.start(site, tmp_path / "site.log")
        code, out = machine.run(f"cp {tmp_path}/haproxy.cfg /etc/haproxy/; {_SET_UP}")
        assert code == 0, out
        yield machine
    finally:
        machine.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="a machine of its own needs root")
def test_controller_watchdog_and_agent_start_as_their_units_say(
    machine: Machine, tmp_path: Path
) -> None:
    names = ("dial-controller@.service", "dial-watchdog@.service", "dial-agent.service")
    logs = {name: tmp_path / f"{name}.log" for name in names}
    started = {name: machine.start(as_systemd_would(name), logs[name]) for name in names}

    def row() -> dict[str, object]:
        code, out = machine.run("dial status --json")
        rows = json.loads(out)["backends"] if code == 0 else []
        return next((each for each in rows if each["name"] == "web1"), {})

    def both_are_there() -> bool:
        for name, process in started.items():
            assert process.poll() is None, logs[name].read_text()
        # `agent` says why there is no sample of it.
        return row().get("agent", "no row") is None and "watches" in logs[names[1]].read_text()

    until(both_are_there, "a sample of the agent, and a watchdog")
    for name in reversed(names):
        assert machine.run(f"kill -TERM $(cat /run/{name}.pid)") == (0, "")
        assert started[name].wait(60.0) == 0, logs[name].read_text()
    # What is nobody else's to read.
    code, out = machine.run("stat -c '%a' /run/dial-shop /run/dial-shop/token /var/lib/dial")
    assert (code, out.split()) == (0, ["700", "600", "700"])
