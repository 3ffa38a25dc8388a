"""What a resource has to provide for a scenario to run on it.

Neighbours come in two sets that never mix: models are fitted beside micro-benchmarks
(``training``), and judged beside other programs, as people run them (``unseen``).
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from dial.errors import LabError
from dial_lab.addresses import Address
from dial_lab.processes import Children
from dial_lab.topology import Machine


@dataclass(frozen=True, slots=True)
class Cost:
    """What requests ask of the tenant's application.

    Attributes
    ----------
    parameter
        The parameter of the URL (see :mod:`dial_lab.app`) that is drawn for each request; or, if
        it has a ``{}``, the whole target with the amount in its place.
    mean
        Mean of its exponential distribution.
    step
        It is rounded up to a multiple of this.
    most
        And is this at most, if not 0.
    fixed
        Further parameters, the same for all requests, as they stand in a URL.
    of_work
        Whether a request asks for an amount of work, which a slow core makes dear; else it is one
        of CPU time, or of another resource.
    new_connections
        Whether the balancer opens a connection to the backend for each request: the connect
        time is one of the paper's signals (T_c, section 4.3.1), and a kept connection has none.
    """

    parameter: str = "cpu_us"
    mean: float = 2000.0
    step: int = 1
    most: int = 0
    fixed: str = ""
    new_connections: bool = True
    of_work: bool = False

    def unit_ns(self, rps: float, cores: float) -> float:
        """CPU time of a unit of the mean, ns, where ``rps`` such requests a second take ``cores``.

        Examples
        --------
        >>> Cost("touches", 250_000.0).unit_ns(160.0, 0.8)
        20.0
        """
        return 1e9 * cores / (rps * self.mean)

    def target(self, amount: int) -> str:
        """The request target that asks for ``amount``.

        Examples
        --------
        >>> Cost("disk_kib", 64.0, step=4, fixed="cpu_us=300").target(63)
        '/work?disk_kib=64&cpu_us=300'
        >>> Cost("/pages/{}.html", 24.0, step=4).target(63)
        '/pages/64.html'
        """
        stepped = -(-amount // self.step) * self.step
        stepped = min(stepped, self.most) if self.most else stepped
        if "{}" in self.parameter:
            return self.parameter.format(stepped)
        return f"/work?{self.parameter}={stepped}" + (f"&{self.fixed}" if self.fixed else "")


Purpose = Literal["training", "unseen"]
Place = TypeVar("Place")

_MARGIN_S = 30.0
"""By how much a program's own time limit exceeds what is asked: a limit, not a clock."""


def limit_s(at_most_s: float) -> int:
    """The time limit to give a program that is stopped after ``at_most_s``, whole seconds.

    Examples
    --------
    >>> limit_s(4.2)
    35
    """
    return math.ceil(at_most_s + _MARGIN_S)


@dataclass(frozen=True, slots=True)
class Program(Generic[Place]):
    """One of the programs that a neighbour can be.

    Attributes
    ----------
    purpose
        Which of the two sets it belongs to; ``None`` if neither, and only policies are compared
        beside it.
    argv
        Its command line, from what it has to know of its place (each resource says what that
        is) and the seconds after which it ends by itself.
    """

    purpose: Purpose | None
    argv: Callable[[Place, int], list[str]]


@dataclass(frozen=True, slots=True)
class InCommon:
    """What is known of a resource that strangers outside the lab have a part in.

    Attributes
    ----------
    slowest_quiet_ns
        CPU time of a unit of a request's cost above which a machine's quiet is not quiet: somebody
        outside takes the resource.
    most_rho_bg
        What a neighbour takes of it at most, however much it is told to take.
    """

    slowest_quiet_ns: float
    most_rho_bg: float


class Resource(Protocol):
    """A resource of the emulated machines."""

    @property
    def name(self) -> str:
        """As in a verdict: cpu, net, disk, llc, self-limited."""

    @property
    def cost(self) -> Cost:
        """What requests cost where this resource is what matters."""

    @property
    def programs(self) -> Mapping[str, Program[Any]]:
        """What a neighbour can be; the first one is what it is unless told otherwise."""

    @property
    def victim_apart(self) -> bool:
        """Whether the first machine is the only one to be visited, and on a core of its own."""

    @property
    def calibrated_together(self) -> bool:
        """Whether it matters to what a machine loses that the other ones are at work."""

    @property
    def in_common(self) -> InCommon | None:
        """``None`` where nobody outside the lab can take it."""

    def tenants(
        self, machines: Sequence[Machine], children: Children
    ) -> AbstractContextManager[Mapping[str, Address]]:
        """Build what the machines need beside CPU, start the tenants, tell where they listen.

        Everything is undone at exit; what a crashed run left is cleared away at entry.
        """

    def start_neighbour(
        self,
        children: Children,
        machine: Machine,
        rho_bg: float,
        at_most_s: float,
        program: str = "",
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
        program
            Which of :attr:`programs`; the first one when empty.

        Raises
        ------
        LabError
            If there is no such program.
        """


def programs_for(resource: Resource, purpose: Purpose) -> tuple[str, ...]:
    """Names of the resource's programs in one of the two sets."""
    return tuple(name for name, each in resource.programs.items() if each.purpose == purpose)


def chosen(programs: Mapping[str, Program[Place]], name: str) -> Program[Place]:
    """The program of that name, the first one when it is empty.

    Raises
    ------
    LabError
        If there is none; lists those there are.
    """
    if name and name not in programs:
        raise LabError(f"neighbour {name}: no such program; allowed: {', '.join(programs)}")
    return programs[name or next(iter(programs))]


def require_another_core(machine: Machine) -> None:
    """That there is a core for a neighbour in the cache, which is on another one than its victim.

    Raises
    ------
    LabError
        If this computer has one core.
    """
    if not machine.other_cores:
        raise LabError("llc: the neighbour needs a core beside the machines'; there is one")
