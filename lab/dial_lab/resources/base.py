"""What a resource has to provide for a scenario to run on it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from dial_lab.addresses import Address
from dial_lab.processes import Children
from dial_lab.topology import Machine


@dataclass(frozen=True, slots=True)
class Cost:
    """What requests ask of the tenant's application.

    Attributes
    ----------
    parameter
        The parameter of the URL (see :mod:`dial_lab.app`) that is drawn for each request.
    mean
        Mean of its exponential distribution.
    step
        It is rounded up to a multiple of this.
    fixed
        Further parameters, the same for all requests, as they stand in a URL.
    new_connections
        Whether the balancer opens a connection to the backend for each request.
    """

    parameter: str = "cpu_us"
    mean: float = 2000.0
    step: int = 1
    fixed: str = ""
    new_connections: bool = False

    def target(self, amount: int) -> str:
        """The request target that asks for ``amount``.

        Examples
        --------
        >>> Cost("disk_kib", 64.0, step=4, fixed="cpu_us=300").target(63)
        '/work?disk_kib=64&cpu_us=300'
        """
        stepped = -(-amount // self.step) * self.step
        return f"/work?{self.parameter}={stepped}" + (f"&{self.fixed}" if self.fixed else "")


class Resource(Protocol):
    """A resource of the emulated machines."""

    @property
    def name(self) -> str:
        """As in a verdict: cpu, net, disk, llc."""

    @property
    def cost(self) -> Cost:
        """What requests cost where this resource is what matters."""

    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> AbstractContextManager[Mapping[str, Address]]:
        """Build what the machines need beside CPU, start the tenants, tell where they listen.

        Everything is undone at exit; what a crashed run left is cleared away at entry.
        """

    def start_neighbour(
        self, children: Children, machine: Machine, rho_bg: float, at_most_s: float
    ) -> subprocess.Popen[bytes]:
        """Start a neighbour that takes ``rho_bg`` of ``machine``; stop it by ``children``.

        Parameters
        ----------
        children
            Whose program it becomes.
        machine
            The victim's.
        rho_bg
            Share of the resource, 0 < rho_bg <= 1.
        at_most_s
            After this time (and a margin) it ends by itself, whatever becomes of the lab.
        """
