"""What is divided among services, in whole units, and who gets how much at first.

Units are integers so that what one gives another gets exactly, whatever is moved how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dial.errors import SettingError
from dial.limits.knobs import Resource

Units = Mapping[Resource, int]

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Service:
    """What is known of one service beforehand.

    Attributes
    ----------
    name
        Of the service.
    target_ms
        Its latency target; ``None`` for a best-effort job.
    stateless
        Whether its load can go elsewhere without data.
    floors
        Units that it keeps whatever happens, at least 1 of each resource.
    """

    name: str
    target_ms: float | None
    stateless: bool = False
    floors: Units = field(default_factory=dict)

    @property
    def best_effort(self) -> bool:
        """Whether it has no target."""
        return self.target_ms is None

    def floor(self, resource: Resource) -> int:
        """The least units of ``resource``; none at all would be a stop, not a share."""
        return max(1, self.floors.get(resource, 1))


@dataclass(frozen=True, slots=True)
class Machine:
    """What is divided, and among whom.

    Attributes
    ----------
    services
        All of them, best-effort jobs included; names are unique.
    totals
        Units of each resource that is managed here.
    memory_unit_bytes
        One unit of memory.
    memory_slack_bytes
        Memory beyond its use that an in-memory service keeps (the paper's 1 GB).
    """

    services: tuple[Service, ...]
    totals: Units
    memory_unit_bytes: int = GIB
    memory_slack_bytes: int = GIB

    def service(self, name: str) -> Service:
        """The service called ``name``."""
        return next(service for service in self.services if service.name == name)


def fair(
    machine: Machine, in_use: Mapping[str, Units] | None = None
) -> dict[str, dict[Resource, int]]:
    """Divide everything: to each its floor, then the rest to whoever has least.

    Parameters
    ----------
    machine
        What is divided, and among whom.
    in_use
        Units that a service holds already and must not lose at once: memory in use.  The
        paper starts from equal parts of a server of 128 GB; in a small VM an equal part can be
        less than what a service has in memory, and the limit would make it swap.

    Raises
    ------
    SettingError
        If floors, or what is in use, are more than there is.

    Examples
    --------
    >>> two = (Service("web", 20.0), Service("db", 5.0, floors={Resource.CPU: 6}))
    >>> {n: u[Resource.CPU] for n, u in fair(Machine(two, {Resource.CPU: 10})).items()}
    {'web': 4, 'db': 6}
    """
    shares: dict[str, dict[Resource, int]] = {service.name: {} for service in machine.services}
    for resource, total in machine.totals.items():
        column = {
            service.name: max(
                service.floor(resource), (in_use or {}).get(service.name, {}).get(resource, 0)
            )
            for service in machine.services
        }
        if sum(column.values()) > total:
            raise SettingError(
                f"{resource}: floors and what is in use are {sum(column.values())} units; "
                f"allowed: at most {total}, all there is"
            )
        for _ in range(total - sum(column.values())):
            column[_least(column)] += 1
        for name, units in column.items():
            shares[name][resource] = units
    return shares


def idle(machine: Machine, shares: Mapping[str, Units]) -> dict[Resource, int]:
    """Units of each resource that nobody has."""
    return {
        resource: total - _sum(shares.values(), resource)
        for resource, total in machine.totals.items()
    }


def _sum(shares: Iterable[Units], resource: Resource) -> int:
    return sum(units[resource] for units in shares)


def _least(column: Mapping[str, int]) -> str:
    return min(column, key=lambda name: column[name])
