"""A machine of its own, made of namespaces: commands run there as they are written.

Its processes, its network and its /etc, /opt, /run and /var/lib are not this computer's;
all else, the checkout included, is.  What runs there ends with it.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

COMMAND_S = 120.0
"""Bound of one command: far more than it takes."""

WITHIN_S = 60.0
"""For anything that is awaited: far more than it takes, so that a busy machine passes too."""

_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child")
_SET_UP = """
set -e
cp -a /etc "$0/etc"
mount --bind "$0/etc" /etc
for path in /opt /run /var/lib; do mount -t tmpfs none $path; done
mkdir -p /run/haproxy /var/lib/haproxy
ip link set lo up
for address in "$@"; do ip addr add "$address/32" dev lo; done
echo up
exec cat  # until whoever started it is gone, however that came
"""

_SYSTEMCTL = """#!/bin/bash
# `systemctl reload haproxy` as Debian's unit does it: a signal, and back when the new worker runs.
[ "$*" = "reload haproxy" ] || { echo "not on this machine: systemctl $*" >&2; exit 1; }
main=$(cat /run/haproxy.pid)
before=$(cat /proc/$main/task/$main/children)
kill -USR2 "$main"
for _ in $(seq 200); do
  now=$(cat /proc/$main/task/$main/children)
  [ -n "$now" ] && [ "$now" != "$before" ] && exit 0
  sleep 0.05
done
echo "haproxy was not reloaded" >&2; exit 1
"""


def until(look: Callable[[], object], what: str) -> None:
    """Ask again and again."""
    end_s = time.monotonic() + WITHIN_S
    while not look():
        assert time.monotonic() < end_s, f"not within {WITHIN_S:g} s: {what}"
        time.sleep(0.3)


class Machine:
    """Namespaces that live as long as this object is open.

    Parameters
    ----------
    directory
        For what it needs on disk.
    addresses
        On its loopback interface.
    environment
        Of every command.
    """

    def __init__(
        self, directory: Path, addresses: Iterable[str], environment: Mapping[str, str]
    ) -> None:
        if os.geteuid() != 0:
            pytest.skip("namespaces with an /etc of their own need root")
        self.home = directory / "home"
        self.home.mkdir()
        programs = directory / "programs"
        programs.mkdir()
        (programs / "systemctl").write_text(_SYSTEMCTL)
        (programs / "systemctl").chmod(0o755)
        self.environment = dict(environment)
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"
        self._started: list[subprocess.Popen[bytes]] = []
        self._outside = subprocess.Popen(
            [*_UNSHARE, "bash", "-c", _SET_UP, str(directory), *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._outside.stdout is not None
        if self._outside.stdout.readline() != "up\n":
            _, error = self._outside.communicate()
            pytest.skip(f"no namespaces here: {error.strip()}")
        outside = self._outside.pid
        inside = Path(f"/proc/{outside}/task/{outside}/children").read_text().split()[0]
        self._enter = ["nsenter", "--target", inside, "--mount", "--net", "--pid", "--"]

    def close(self) -> None:
        """End every process in it."""
        self._outside.kill()
        self._outside.communicate()
        for process in self._started:
            process.wait()

    def start(self, script: str, log: Path) -> subprocess.Popen[bytes]:
        """Run lines of shell that go on by themselves; their output goes to ``log``."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._words(script), stdout=output, stderr=output, env=self.environment
            )
        self._started.append(process)
        return process

    def run(self, script: str, cwd: Path | None = None) -> tuple[int, str]:
        """Run lines of shell; the last one's exit code, and all that was printed."""
        done = subprocess.run(
            self._words(script, cwd),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=self.environment,
            timeout=COMMAND_S,
        )
        return done.returncode, done.stdout

    def type(self, script: str, keys: Mapping[str, str]) -> str:
        """Run lines of shell in a terminal of 80 columns; what was shown.

        Once a text is shown that is one of ``keys``, its value is typed.
        """
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            self._words(f"stty rows 24 cols 80; {script}"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=self.environment | {"TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)
        shown, waiting = "", dict(keys)
        until_s = time.monotonic() + COMMAND_S
        try:
            while time.monotonic() < until_s:
                if not select.select([ours], [], [], 0.2)[0]:
                    continue
                try:
                    shown += os.read(ours, 65_536).decode(errors="replace")
                except OSError:  # everybody has closed it
                    assert process.wait(10) == 0, shown
                    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r\n", "\n")
                for text in [text for text in waiting if text in shown]:
                    os.write(ours, waiting.pop(text).encode())
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        raise AssertionError(f"not within {COMMAND_S:g} s; shown so far:\n{shown}")

    def _words(self, script: str, cwd: Path | None = None) -> list[str]:
        # Another mount namespace is entered at its root.
        return [*self._enter, "bash", "-c", f"cd {cwd or self.home}\n{script}"]
