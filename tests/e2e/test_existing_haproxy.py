"""From an HAProxy that was there to verdicts in shadow mode, by the README alone.

Every line of shell and of dial.toml is the README's own, run as it is written on a machine
of its own (:mod:`machine`): there the paths, ports and names are the real ones.  Only the
backend and its server are called otherwise, as the README says.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.distributions import BUILD, ROOT, link, needs, python3

from .machine import WITHIN_S, Machine, until
from .somebody import HAPROXY_CFG, SERVERS

CONTROLLER = "10.0.0.1"
TEN_MINUTES_S = 600.0
NAMES = {"app": "shop", "s1": "web1", "CONTROLLER": CONTROLLER}
"""What the README's names stand for."""


def blocks(language: str) -> list[str]:
    """The README's blocks of code in "Use it with your HAProxy", in its order."""
    section = (ROOT / "README.md").read_text()
    section = section.split("## Use it with your HAProxy\n")[1].split("\n## ")[0]
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", section, re.MULTILINE | re.DOTALL)
    return [
        re.sub(rf"\b({'|'.join(NAMES)})\b", lambda name: NAMES[name[0]], dedent(block))
        for _, block in found
    ]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Somebody's: HAProxy runs on it, without us, and is used."""
    names = needs(["dial-lb", "dial-lb-haproxy"], BUILD)
    mine = {key: value for key, value in os.environ.items() if not key.startswith("DIAL_")}
    machine = Machine(
        tmp_path,
        [CONTROLLER, *(host for host, _ in SERVERS.values())],
        mine
        | {
            "PATH": f"{python3(tmp_path / 'python')}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(tmp_path / "home"),
            "NO_COLOR": "1",
            # pip finds what we need there, so that it downloads nothing.
            "PYTHONPATH": str(link(names, tmp_path / "needs")),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # which is how pip spells "without"
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        },
    )
    try:
        config = tmp_path / "haproxy.cfg"
        config.write_text(HAPROXY_CFG)
        code, out = machine.run(f"cp {config} /etc/haproxy/haproxy.cfg")
        assert code == 0, out
        site = f"exec {sys.executable} {Path(__file__).with_name('somebody.py')} {tmp_path}"
        machine.start(site, tmp_path / "site.log")
        code, out = machine.run("haproxy -W -D -p /run/haproxy.pid -f /etc/haproxy/haproxy.cfg")
        assert code == 0, out
        yield machine
    finally:
        machine.close()


def state(machine: Machine) -> dict[str, dict[str, object]]:
    """Rows of ``dial status --json`` by backend; none while nobody answers."""
    code, out = machine.run("dial status --json")
    return {row["name"]: row for row in json.loads(out)["backends"]} if code == 0 else {}


def held(machine: Machine, field: str) -> object:
    """What the controller says of web1; a word of our own while nobody answers."""
    return state(machine).get("web1", {}).get(field, "not known")


def test_the_readme_leads_from_somebodys_haproxy_to_verdicts(
    machine: Machine, tmp_path: Path
) -> None:
    began_s = time.monotonic()
    install, open_up, start, look, make_token, run_agent, enforce = blocks("sh")

    # 1
    code, out = machine.run(install, cwd=ROOT)
    assert code == 0, out
    exported = re.search(r'^export (PATH)="(.*):\$PATH"$', install, re.MULTILINE)
    assert exported is not None
    machine.environment["PATH"] = f"{exported[2]}:{machine.environment['PATH']}"
    code, out = machine.run("python3 -c 'import sys; print(sys.path)'; dial --version")
    assert code == 0, out
    assert str(ROOT) not in out

    # 2: what is missing is named with its line, put in, and loaded.
    what_is_missing, rest = open_up.split("\n", 1)
    code, out = machine.run(what_is_missing)
    assert code == 1, out
    assert "3 errors, 0 warnings" in out
    code, out = machine.run(f"set -e\n{rest}")
    assert code == 0, out
    code, out = machine.run(what_is_missing)
    assert code == 0, out
    assert "0 errors, 0 warnings" in out

    # 3: nothing is missing any more; the controller goes on in this terminal.
    write, check, run = start.strip().split("\n")
    assert machine.run(write) == (0, "")
    until(lambda: "0 errors, 1 warning," in machine.run(check)[1], "the log's lines come")
    code, out = machine.run(check)
    assert code == 0, out
    assert "no token is configured" in out
    controller = machine.start(f"echo $$ > controller.pid; exec {run}", tmp_path / "controller.log")

    # 4: a verdict for each backend, once their quiet past is known.
    def learnt() -> bool:
        rows = state(machine)
        return rows.keys() == {"web1", "web2", "web3"} and all(
            isinstance(row["t_x_ms"], float) and isinstance(row["expected_t_x_ms"], float)
            for row in rows.values()
        )

    until(learnt, "all backends learnt")
    shown = machine.type(f"set -e\n{look}", keys={"q quits": "q"})
    assert "shop (haproxy), shadow, tick " in shown
    for name in ("web1", "web2", "web3"):
        # Unknown, where a busy machine has just made it slow.
        assert re.search(rf"^{name} .* (none|unknown) ", shown, re.MULTILINE), shown
    assert "web1 of shop, tick " in shown
    assert re.search(r"^Verdict: (none|unknown)$", shown, re.MULTILINE), shown
    assert "shadow mode: plans are shown, never written" in shown
    assert time.monotonic() - began_s < TEN_MINUTES_S

    # And what it is for: a server that gets slow is seen, and what would be done; nothing is.
    (tmp_path / "slow").write_text("web1")
    until(lambda: held(machine, "cause") == "unknown", "web1 found slow")
    code, out = machine.run("dial explain web1")
    assert code == 0, out
    assert "Verdict: unknown" in out
    assert "to learn why: `dial agent --backend web1` on its VM" in out
    assert "Weight 1 in force (configured: 1)" in out
    (tmp_path / "slow").unlink()

    # 5 and 6: an agent is let in, and says what it sees.
    code, out = machine.run(f"set -e\n{make_token}")
    assert code == 0, out
    api, lease = blocks("toml")
    with (machine.home / "dial.toml").open("a") as config:
        config.write(api)
    code, out = machine.run(check)
    assert code == 1, out
    assert "a controller that runs holds it: stop it" in out
    machine.run("kill $(cat controller.pid)")
    assert controller.wait(WITHIN_S) == 0
    until(lambda: "0 errors, 0 warnings," in machine.run(check)[1], "nothing missing")
    again = f"echo $$ > controller.pid; exec {run}"
    controller = machine.start(again, tmp_path / "controller-2.log")
    until(lambda: state(machine), "the controller runs again")
    machine.start(f"exec {run_agent}", tmp_path / "agent.log")
    until(lambda: held(machine, "agent") is None, "a sample of web1's agent")

    # 7: enforced, under a lease that the watchdog looks after.
    make_directory, watch = enforce.strip().split("\n")
    assert machine.run(make_directory) == (0, "")
    toml = machine.home / "dial.toml"
    toml.write_text(f'mode = "enforce"\n{toml.read_text()}{lease}')
    machine.run("kill $(cat controller.pid)")
    assert controller.wait(WITHIN_S) == 0
    machine.start(f"exec {run}", tmp_path / "controller-3.log")
    # The lease itself is there while weights are ours; its lock says who may write it.
    until(lambda: machine.run("test -e /var/lib/dial/shop.lease.lock")[0] == 0, "a lock")
    until(lambda: state(machine), "the controller runs and enforces")
    machine.start(f"exec {watch}", tmp_path / "watchdog.log")
    until(lambda: "watches" in (tmp_path / "watchdog.log").read_text(), "a watchdog")
    code, out = machine.run("dial status")
    assert code == 0, out
    assert "shop (haproxy), enforce, tick " in out
