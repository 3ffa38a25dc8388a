"""The tenant's application on a machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dial_lab import app
from dial_lab.addresses import START_WAIT_S, wait_for_port
from dial_lab.processes import Children
from dial_lab.topology import Machine
from dial_lab.vms import Vm


def page_of(machine: Machine) -> Path:
    """Where the machine's application has its statistics page, if it has one."""
    return Path(f"/dev/shm/dial-lab-{machine.name}.page")  # noqa: S108 - shared memory, as pBox has it


def start_app(
    children: Children,
    machine: Machine,
    vm: Vm,
    options: Sequence[str] = (),
    *,
    wait_s: float = START_WAIT_S,
) -> subprocess.Popen[bytes]:
    """Start the application in the machine's VM and wait until it listens.

    Parameters
    ----------
    children
        Whose program it becomes.
    machine
        Whose VM it is.
    vm
        Where it runs there, and listens.
    options
        Further ones of :mod:`dial_lab.app`, as on a command line.
    wait_s
        How long it may take to listen.
    """
    process = children.start(
        f"app-{machine.name}",
        # -I -S: no site packages, which would cost a third of a core half a second.
        [
            *vm.enter,
            *(sys.executable, "-I", "-S", str(Path(app.__file__))),
            *("--host", vm.address.host, "--port", str(vm.address.port)),
            *options,
        ],
        cores=[machine.core],
        join=machine.tenant_files(),
    )
    wait_for_port(vm.address, children, wait_s)
    return process
