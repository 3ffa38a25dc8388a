"""The tenant's application on a machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dial_lab import app
from dial_lab.addresses import Address, wait_for_port
from dial_lab.processes import Children
from dial_lab.topology import Machine


def start_app(children: Children, machine: Machine, address: Address) -> subprocess.Popen[bytes]:
    """Start the application in the machine's VM and wait until it listens."""
    process = children.start(
        f"app-{machine.name}",
        # -I -S: no site packages, which would cost a third of a core half a second.
        [
            *(sys.executable, "-I", "-S", str(Path(app.__file__))),
            *("--host", address.host, "--port", str(address.port)),
        ],
        cores=[machine.core],
        join=machine.tenant_files(),
    )
    wait_for_port(address, children)
    return process
