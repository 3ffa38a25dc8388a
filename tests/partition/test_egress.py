"""On a real kernel, in a network namespace that nobody else uses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dial.agent.cgroups import MOUNTINFO, parse_mountinfo

DIVIDES = """
import json, os, pathlib, socket, subprocess, sys
from dial.limits import qdisc
from dial.partition import egress
from dial.limits.journal import Journal, Limits

group, journal_path = sys.argv[1:]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
pathlib.Path(group, "cgroup.procs").write_text(str(os.getpid()))
journal = Journal(pathlib.Path(journal_path), Limits(["/nowhere"]), qdisc.remove_qdisc)
journal.begin()
divided = egress.Egress("lo", 1e9, {"web": group, "db": group + "/none"}, journal)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
    to.bind(("127.0.0.1", 0))
    to.sendto(bytes(1000), to.getsockname())
sent = divided._bytes_sent()
divided.adjust(0.5)
before = qdisc.root_handle("lo")
divided.close()
complaints = journal.undo()
print(json.dumps([sent, before == qdisc.HANDLE, qdisc.root_handle("lo"), complaints]))
"""


@pytest.fixture
def group() -> Iterator[Path]:
    mount = parse_mountinfo(Path(MOUNTINFO).read_text()).v2
    if os.geteuid() != 0 or mount is None or shutil.which("tc") is None:
        pytest.skip("needs root, a cgroup v2 hierarchy and tc")
    directory = Path(mount) / f"dial-test-{os.getpid()}"
    (directory / "none").mkdir(parents=True)
    yield directory
    (directory / "none").rmdir()
    directory.rmdir()


@pytest.mark.root
def test_packets_go_to_the_class_of_their_group_and_the_qdisc_goes_at_the_end(
    group: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", DIVIDES, str(group), str(tmp_path / "journal")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "Operation not permitted" in done.stderr or "Unknown qdisc" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    sent, ours, after, complaints = json.loads(done.stdout)
    # 1000 bytes of data, and headers of UDP, IP and Ethernet.
    assert sent == {"web": 1042, "db": 0}
    assert ours
    assert after == 0
    assert complaints == []
