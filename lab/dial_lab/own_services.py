"""Two services and a batch job of one tenant in one VM: the scenario ``own-services``.

The VM is a control group with a quota of :data:`VM_CORES`; in it are a web service (2 ms of CPU
a request, target 80 ms), a service with short requests and a tighter target (0.4 ms, 50 ms) and a
batch job that takes whatever it gets.  After a third of the time the web service's load
rises from 0.15 to 0.4 of the VM.  Three managements take turns with the same requests:

``unmanaged``
    No limits: three groups of equal weight.
``even``
    A static quota of a third each.
``partition``
    ``dial agent --partition``, from nothing; latency comes from the client's log, as it would
    from the balancer's.

The load of a service is a fraction of what the whole VM could serve of it.  Effective machine
utilisation (PARTIES, 5.2.2) is the sum of both loads where both targets are met.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dial.types import Cause
from dial_lab.addresses import Address, free_ports
from dial_lab.arrivals import Swing, draw
from dial_lab.cgroups import PREFIX, Cgroups
from dial_lab.client import precise_loop
from dial_lab.logged_load import Load, Requests
from dial_lab.one_vm import serve, start_agent
from dial_lab.processes import Children
from dial_lab.told import AFTER_S, LEARN_S, Told, Vm, watch
from dial_lab.topology import exclusive, host_cgroups, private_directory, remove_all

VM_CORES = 0.6
PERCENTILE = 95.0
ARMS = ("unmanaged", "even", "partition")

_VM = f"{PREFIX}vm"
_PERIOD_US = 10_000
_WINDOW_S, _WINDOWS = 2.0, 3
"""Over which a target is looked at when convergence is timed, and how many in a row are enough.

Not all that follow: a partition goes on trying what it can take back."""

_BATCH = "while True: pass"


@dataclass(frozen=True, slots=True)
class Service:
    """One latency-critical service, and its load before and after the step."""

    name: str
    target_ms: float
    cpu_us: float
    loads: tuple[float, float]

    def rate_per_s(self, load: float) -> float:
        """Requests a second that are so much of the VM."""
        return load * VM_CORES * 1e6 / self.cpu_us


SERVICES = (
    Service("web", 80.0, 2000.0, (0.15, 0.40)),
    Service("cache", 50.0, 400.0, (0.10, 0.10)),
)
_GROUPS = (*(service.name for service in SERVICES), "batch")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One arm: what each service had after the load step, when things had settled.

    Attributes
    ----------
    p95_ms
        By service, over the last third of the time; ``None`` where more than that went unanswered.
    met
        Whether both are within their targets.
    utilisation
        Sum of both loads if so, else of those before the step if the targets were met there,
        else 0.
    converged_s
        From the step until both are within their targets for six seconds; ``None`` if they are
        not in the end.
    batch_cores
        Of the batch job, over the last third.
    """

    p95_ms: Mapping[str, float | None]
    met: bool
    utilisation: float
    converged_s: float | None
    batch_cores: float


def execute(seconds: float, seed: int, arms: Sequence[str] = ARMS) -> dict[str, Outcome]:
    """Run every arm once, one after the other.

    Raises
    ------
    LabError
        If the VM cannot be built here, or a program ends by itself.
    """
    cgroups = host_cgroups()
    outcomes = {}
    with exclusive(), private_directory() as private:
        for arm in arms:
            place = private / arm
            place.mkdir()
            remove_all(cgroups)
            try:
                with Children(place) as children:
                    outcomes[arm] = _arm(arm, cgroups, children, place, seconds=seconds, seed=seed)
            finally:
                remove_all(cgroups)
    return outcomes


def as_json(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The report, with what the issue of it is: the ratio of utilisations."""
    report: dict[str, Any] = {name: asdict(outcome) for name, outcome in outcomes.items()}
    even, ours = outcomes.get("even"), outcomes.get("partition")
    if even is not None and ours is not None and even.utilisation > 0.0:
        report["utilisation_ratio"] = ours.utilisation / even.utilisation
    return report


def _arm(
    arm: str, cgroups: Cgroups, children: Children, place: Path, *, seconds: float, seed: int
) -> Outcome:
    cgroups.create(_VM)
    cgroups.set_quota(_VM, VM_CORES * _PERIOD_US, _PERIOD_US)
    for name in _GROUPS:
        cgroups.create(f"{_VM}/{name}")
        if arm == "even":
            cgroups.set_quota(f"{_VM}/{name}", VM_CORES * _PERIOD_US / len(_GROUPS), _PERIOD_US)
    core, harness = _cores()
    addresses = {}
    for service, port in zip(SERVICES, free_ports(len(SERVICES)), strict=True):
        address = addresses[service.name] = Address("127.0.0.1", port)
        serve(children, address, core, cgroups.procs_files(f"{_VM}/{service.name}"))
    _batch(children, core, cgroups)
    logs = {service.name: place / f"{service.name}.latency" for service in SERVICES}
    for log in logs.values():
        log.touch()
    if arm == "partition":
        settings = _settings(place, SERVICES, logs)
        start_agent(children, place, ("--partition", str(settings)), harness)
    arrivals = {
        service.name: draw(
            seed,
            index,
            service.rate_per_s(service.loads[0]),
            duration_s=seconds,
            mean_cost=service.cpu_us,
            swings=[Swing(seconds / 3, seconds, service.loads[1] / service.loads[0])],
        )
        for index, service in enumerate(SERVICES)
    }
    load = Load(addresses, arrivals, logs)
    used: list[float] = []

    def read() -> None:
        used.append(cgroups.usage_s(f"{_VM}/batch"))

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(load.run(seconds, ((seconds * 2 / 3, read), (seconds, read))))
    children.check()
    return _outcome(load.results(), seconds, (used[1] - used[0]) / (seconds / 3))


def told(seconds: float, seed: int) -> Told:
    """What a controller says of a VM beside whose web service the batch job runs for a while.

    The agent has the services' file in a dry run, so nothing is divided; of all loads there is the
    web service's before the step, doubled.

    Raises
    ------
    LabError
        As :func:`execute`.
    """
    cgroups, web = host_cgroups(), SERVICES[0]
    core, harness = _cores()
    address = Address("127.0.0.1", free_ports(1)[0])
    with exclusive(), private_directory() as place:
        remove_all(cgroups)
        try:
            with Children(place) as children:
                cgroups.create(_VM)
                cgroups.set_quota(_VM, VM_CORES * _PERIOD_US, _PERIOD_US)
                for name in (web.name, "batch"):
                    cgroups.create(f"{_VM}/{name}")
                serve(children, address, core, cgroups.procs_files(f"{_VM}/{web.name}"))
                log = place / "web.latency"
                log.touch()
                settings = _settings(place, [web], {web.name: log})

                def disturb() -> Callable[[], None]:
                    process = _batch(children, core, cgroups)
                    return lambda: children.stop(process)

                vm = Vm(
                    address,
                    draw(
                        seed,
                        0,
                        web.rate_per_s(2.0 * web.loads[0]),
                        duration_s=LEARN_S + seconds + AFTER_S,
                        mean_cost=web.cpu_us,
                    ),
                    ("--cgroup", _VM, "--partition", str(settings), "--partition-dry-run"),
                    disturb,
                )
                return watch(
                    vm, Cause.OWN_SERVICES, children, place, seconds=seconds, cores=harness
                )
        finally:
            remove_all(cgroups)


def _batch(children: Children, core: int, cgroups: Cgroups) -> subprocess.Popen[bytes]:
    return children.start(
        "batch",
        [sys.executable, "-I", "-S", "-c", _BATCH],
        cores=[core],
        join=cgroups.procs_files(f"{_VM}/batch"),
    )


def _cores() -> tuple[int, list[int]]:
    *others, last = sorted(os.sched_getaffinity(0))
    return last, others or [last]


def _settings(place: Path, services: Sequence[Service], logs: Mapping[str, Path]) -> Path:
    """Write what ``--partition`` is given."""
    lines = [f'subtree = "{_VM}"', f'journal = "{place}/journal"']
    for service in services:
        lines += [
            f"[services.{service.name}]",
            f"target_ms = {service.target_ms}",
            f"percentile = {PERCENTILE}",
            f'log = {{ path = "{logs[service.name]}", field = 1 }}',
        ]
    settings = place / "partition.toml"
    settings.write_text("\n".join([*lines, "[services.batch]", ""]))
    return settings


def _outcome(
    results: Mapping[str, Requests],
    seconds: float,
    batch_cores: float,
) -> Outcome:
    step_s, settled_s = seconds / 3, seconds * 2 / 3
    before = {s.name: _p95(results[s.name], step_s / 2, step_s) for s in SERVICES}
    after = {s.name: _p95(results[s.name], settled_s, seconds) for s in SERVICES}
    converged_s = _converged_s(results, step_s, seconds) if _met(after) else None
    if _met(after):
        utilisation = sum(service.loads[1] for service in SERVICES)
    else:
        utilisation = sum(service.loads[0] for service in SERVICES) if _met(before) else 0.0
    known = {name: ms if np.isfinite(ms) else None for name, ms in after.items()}
    return Outcome(known, _met(after), utilisation, converged_s, batch_cores)


def _converged_s(
    results: Mapping[str, Requests],
    step_s: float,
    end_s: float,
) -> float | None:
    """Time from the step until both targets are met in windows one after the other."""
    run = 0
    for begin_s in np.arange(step_s, end_s - _WINDOW_S + 1e-9, _WINDOW_S):
        window = {s.name: _p95(results[s.name], begin_s, begin_s + _WINDOW_S) for s in SERVICES}
        run = run + 1 if _met(window) else 0
        if run == _WINDOWS:
            return float(begin_s - (_WINDOWS - 1) * _WINDOW_S - step_s)
    return None


def _met(p95_ms: Mapping[str, float]) -> bool:
    return all(p95_ms[service.name] <= service.target_ms for service in SERVICES)


def _p95(result: Requests, begin_s: float, end_s: float) -> float:
    intended_s, latency_ms = result
    chosen = latency_ms[(intended_s >= begin_s) & (intended_s < end_s)]
    return float(np.percentile(chosen, PERCENTILE, method="higher")) if len(chosen) else 0.0
