"""The first process of a guest: mounts, network, then programs for whoever asks.

Runs inside the guest, as a file, with the standard library alone.  What :mod:`.enter` is on
the other end of, one TCP connection for each program:

- it sends the program and its arguments as one line of JSON;
- it gets what the program prints, then a zero byte and the exit code;
- when it goes away, the program is ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys

_MOST_LINE_BYTES = 65_536
_STOP_WAIT_S = 2.0


def set_up(name: str, device: str, address: str, prefix: int, gateway: str) -> None:
    """Take a name, mount the kernel's own file systems, and bring the network up."""
    socket.sethostname(name)
    for line in (
        "mount -t proc proc /proc",
        "mount -t sysfs sysfs /sys",
        "ip link set lo up",
        f"ip address add {address}/{prefix} dev {device}",
        f"ip link set {device} up",
        f"ip route add default via {gateway}",
    ):
        subprocess.run(line.split(), check=True)


def serve(address: str, port: int) -> None:
    """Run programs, one process for each caller, for as long as the guest lives."""
    # The kernel reaps: the first process inherits everybody's orphans.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.create_server((address, port)) as server:
        while True:
            caller, _ = server.accept()
            with caller:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    server.close()
                    answer(caller)
                    os._exit(0)


def answer(caller: socket.socket) -> None:
    """Run what one caller asks for, until it ends or the caller goes away."""
    line = caller.makefile("rb").readline(_MOST_LINE_BYTES)
    if not line:  # somebody who only looked whether we listen
        return
    out = caller.fileno()
    try:
        process = subprocess.Popen(
            json.loads(line), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    except OSError as error:
        caller.sendall(f"{error}\n".encode() + b"\x00127")
        return
    select.select([out, os.pidfd_open(process.pid)], [], [])
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
        return
    caller.sendall(b"\x00%d" % process.returncode)


if __name__ == "__main__":
    # The kernel puts options of its own (root=, console=) behind ours.
    _name, _device, _address, _prefix, _gateway, _port = sys.argv[1:7]
    set_up(_name, _device, _address, int(_prefix), _gateway)
    serve(_address, int(_port))
