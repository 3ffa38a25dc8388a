from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dial.errors import LimitError
from dial.limits.guardian import put_back
from dial.limits.journal import Journal, JournalInUse, Limits, entries_of
from dial.limits.knobs import Write
from tests.hosts import Host

WITHIN = ("/sys/fs/cgroup/vm",)
FILE = "/sys/fs/cgroup/vm/web/cpu.max"
BEFORE = Write(FILE, "max 100000")


def no_qdisc(device: str) -> None:
    raise AssertionError(device)


def opened(host: Host) -> Journal:
    limits = Limits(WITHIN, str(host.root))
    return Journal(host.root / "journal", limits, no_qdisc, wait_s=0.0)


def begun(host: Host) -> Journal:
    journal = opened(host)
    journal.begin()
    return journal


def test_what_was_there_is_put_back_newest_first(host: Host) -> None:
    host.with_v2()
    journal = begun(host)
    journal.record([BEFORE])
    journal.record([Write(FILE, "1 2")])
    assert journal.undo() == []
    assert host.text(FILE) == "max 100000"
    assert journal.text() == ""


def test_a_journal_left_behind_is_put_back_by_whoever_finds_it(host: Host) -> None:
    host.with_v2()
    journal = begun(host)
    journal.record([BEFORE])
    host.put(FILE, "1000 10000                ")
    journal.close()
    assert put_back(host.root / "journal", no_qdisc, str(host.root)) == []
    assert host.text(FILE).startswith("max 100000")
    assert put_back(host.root / "journal", no_qdisc, str(host.root)) == []


def test_a_line_cut_short_is_a_change_never_made(host: Host) -> None:
    journal = begun(host)
    journal.record([BEFORE])
    assert entries_of(journal.text()[:-3]) == []


def test_a_group_that_has_gone_needs_nothing_back(host: Host) -> None:
    journal = begun(host)
    journal.record([BEFORE])
    assert journal.undo() == []


def test_what_cannot_be_put_back_stays_in_the_journal(host: Host) -> None:
    (host.root / FILE[1:]).mkdir(parents=True)  # writing to it fails
    journal = begun(host)
    journal.record([BEFORE])
    assert "cannot write" in journal.undo()[0]
    assert entries_of(journal.text()) == [{"writes": [[FILE, "max 100000"]]}]


@pytest.mark.parametrize(
    "path",
    [
        "/sys/fs/cgroup/other/cpu.max",
        "/sys/fs/cgroup/vm/cpu.max",
        "/sys/fs/cgroup/vm/web/../../cpu.max",
        "/sys/fs/cgroup/vmx/web/cpu.max",
        "/etc/passwd",
    ],
)
def test_nothing_outside_of_the_services_groups_is_written_or_remembered(
    host: Host, path: str
) -> None:
    write = Write(path, "x")
    with pytest.raises(LimitError, match="never written"):
        Limits(WITHIN, str(host.root)).write(write)
    with pytest.raises(LimitError, match="never written"):
        begun(host).record([write])


def test_a_file_that_is_not_there_does_not_come_into_being(host: Host) -> None:
    with pytest.raises(FileNotFoundError):
        Limits(WITHIN, str(host.root)).write(BEFORE)
    assert not (host.root / FILE[1:]).exists()


def test_two_agents_do_not_share_a_journal(host: Host) -> None:
    first = begun(host)
    with pytest.raises(JournalInUse):
        opened(host)
    first.close()
    opened(host).close()


@pytest.mark.parametrize(
    "text",
    ["no journal\n", '{"format": "other"}\n', "[]\n", '{"format":"dial-partition-journal/1"}\n'],
)
def test_a_file_that_is_no_journal_of_ours_is_refused(host: Host, text: str) -> None:
    host.put("/journal", text)
    with pytest.raises(LimitError, match="dial-partition-journal/1"):
        put_back(host.root / "journal", no_qdisc, str(host.root))


KILLED = """
import sys, time
from pathlib import Path
from dial.limits.guardian import watch
from dial.limits.journal import Journal, Limits
from dial.limits.knobs import Write

journal, directory = sys.argv[1:]
limits = Limits((str(Path(directory).parent),))
opened = Journal(Path(journal), limits, print)
opened.begin()
guardian = watch(journal)
file = directory + "/cpu.max"
opened.record([Write(file, "max 100000")])
limits.write(Write(file, "1000 10000"))
print(guardian.pid, flush=True)
time.sleep(60)
"""


def test_the_guardian_puts_back_what_a_killed_agent_has_written(tmp_path: Path) -> None:
    group = tmp_path / "vm" / "web"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text("max 100000")
    agent = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "journal"), str(group)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert agent.stdout is not None
    with agent.stdout:
        guardian = os.pidfd_open(int(agent.stdout.readline()))
    assert (group / "cpu.max").read_text() == "1000 10000"
    agent.send_signal(signal.SIGKILL)
    agent.wait(10)
    # It is no child of ours; readable once it has ended.
    with os.fdopen(guardian):
        assert select.select([guardian], [], [], 20.0)[0]
    assert (group / "cpu.max").read_text() == "max 100000"
