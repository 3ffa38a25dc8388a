"""Programs of the scenarios that are about one VM alone: its services, and its agent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dial_lab import app
from dial_lab.addresses import Address, wait_for_port
from dial_lab.processes import Children

NOBODY = "http://127.0.0.1:1"
"""A controller's address at which nobody listens: for what an agent does by itself."""


def serve(children: Children, address: Address, core: int, join: Sequence[Path]) -> None:
    """Start the lab's application as one service of a VM, and wait until it listens."""
    children.start(
        f"service-{address.port}",
        [
            *(sys.executable, "-I", "-S", str(Path(app.__file__))),
            *("--host", address.host, "--port", str(address.port)),
        ],
        cores=[core],
        join=join,
    )
    wait_for_port(address, children)


def start_agent(
    children: Children,
    place: Path,
    arguments: Sequence[str],
    cores: Sequence[int],
    *,
    controller: str = NOBODY,
) -> None:
    """Start the VM's agent; ``place`` is for its files."""
    token = place / "token"
    token.write_text("none-is-asked\n")
    children.start(
        "agent",
        [
            *(sys.executable, "-m", "dial.agent"),
            *("--controller", controller, "--backend", "vm", "--token-file", str(token)),
            *arguments,
        ],
        cores=cores,
    )
