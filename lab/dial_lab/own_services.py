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
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dial_lab import app
from dial_lab.addresses import Address, free_ports, wait_for_port
from dial_lab.arrivals import Arrivals, Swing, draw
from dial_lab.cgroups import PREFIX, Cgroups
from dial_lab.client import Pool, precise_loop
from dial_lab.loadgen import Generator
from dial_lab.processes import Children
from dial_lab.resources.base import Cost
from dial_lab.topology import exclusive, host_cgroups, private_directory, remove_all

VM_CORES = 0.6
PERCENTILE = 95.0
ARMS = ("unmanaged", "even", "partition")

_VM = f"{PREFIX}vm"
_PERIOD_US = 10_000
_WRITE_LOG_S = 0.1
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
        children.start(
            service.name,
            [
                *(sys.executable, "-I", "-S", str(Path(app.__file__))),
                *("--host", address.host, "--port", str(address.port)),
            ],
            cores=[core],
            join=cgroups.procs_files(f"{_VM}/{service.name}"),
        )
        wait_for_port(address, children)
    children.start(
        "batch",
        [sys.executable, "-I", "-S", "-c", _BATCH],
        cores=[core],
        join=cgroups.procs_files(f"{_VM}/batch"),
    )
    logs = {service.name: place / f"{service.name}.latency" for service in SERVICES}
    for log in logs.values():
        log.touch()
    if arm == "partition":
        _agent(children, place, logs, harness)
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
    load = _Load(addresses, arrivals, logs)
    used: list[float] = []
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(load.run(seconds, lambda: used.append(_cpu_s(cgroups, f"{_VM}/batch"))))
    children.check()
    return _outcome(load.results(), seconds, (used[1] - used[0]) / (seconds / 3))


def _cores() -> tuple[int, list[int]]:
    *others, last = sorted(os.sched_getaffinity(0))
    return last, others or [last]


def _agent(children: Children, place: Path, logs: Mapping[str, Path], cores: Sequence[int]) -> None:
    token, settings = place / "token", place / "partition.toml"
    token.write_text("none-is-asked\n")
    lines = [f'subtree = "{_VM}"', f'journal = "{place}/journal"']
    for service in SERVICES:
        lines += [
            f"[services.{service.name}]",
            f"target_ms = {service.target_ms}",
            f"percentile = {PERCENTILE}",
            f'log = {{ path = "{logs[service.name]}", field = 1 }}',
        ]
    settings.write_text("\n".join([*lines, "[services.batch]", ""]))
    children.start(
        "agent",
        [
            *(sys.executable, "-m", "dial.agent", "--memory-probe", "off"),
            # Nobody listens there: this scenario is about what the agent does by itself.
            *("--controller", "http://127.0.0.1:1", "--backend", "vm"),
            *("--token-file", str(token), "--partition", str(settings)),
        ],
        cores=cores,
    )


class _Load:
    """The clients of both services, in one loop; what ends is logged at once."""

    def __init__(
        self,
        addresses: Mapping[str, Address],
        arrivals: Mapping[str, Arrivals],
        logs: Mapping[str, Path],
    ) -> None:
        self._addresses = addresses
        self._arrivals = arrivals
        self._logs = logs
        self._generators: dict[str, Generator] = {}

    async def run(self, seconds: float, at_edge: Callable[[], None]) -> None:
        """Send everything; ``at_edge`` is called at the edges of the last third."""
        loop = asyncio.get_running_loop()
        pools = {name: Pool(*address) for name, address in self._addresses.items()}
        self._generators = {
            name: Generator(arrivals, Cost("cpu_us", 0.0), pools[name], (name,))
            for name, arrivals in self._arrivals.items()
        }
        start = loop.time() + 0.5
        for edge_s in (seconds * 2 / 3, seconds):
            loop.call_at(start + edge_s, at_edge)
        with self._opened() as files:
            logging = asyncio.create_task(self._log(files))
            sending = [asyncio.create_task(g.run(start)) for g in self._generators.values()]
            # What is not answered in time keeps its status.
            await asyncio.gather(*sending, return_exceptions=True)
            await asyncio.sleep(max(0.0, start + seconds + 0.1 - loop.time()))
            logging.cancel()
        for pool in pools.values():
            await pool.aclose()

    def results(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """By service: intended moment in s and latency in ms; what was never answered is inf."""
        found = {}
        for name, generator in self._generators.items():
            latency_ms = np.where(generator.results.ok, generator.results.latency_ms, np.inf)
            found[name] = (generator.results.intended_s, latency_ms)
        return found

    @contextmanager
    def _opened(self) -> Iterator[dict[str, TextIO]]:
        files: dict[str, TextIO] = {
            name: log.open("a", encoding="ascii") for name, log in self._logs.items()
        }
        try:
            yield files
        finally:
            for file in files.values():
                file.close()

    async def _log(self, files: Mapping[str, TextIO]) -> None:
        while True:
            await asyncio.sleep(_WRITE_LOG_S)
            for name, generator in self._generators.items():
                ended = generator.ended[:]
                del generator.ended[: len(ended)]
                latency_ms = generator.results.latency_ms
                files[name].write("".join(f"{latency_ms[i]:.3f}\n" for i in ended))
                files[name].flush()


def _outcome(
    results: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
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
    results: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
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


def _p95(
    result: tuple[NDArray[np.float64], NDArray[np.float64]], begin_s: float, end_s: float
) -> float:
    intended_s, latency_ms = result
    chosen = latency_ms[(intended_s >= begin_s) & (intended_s < end_s)]
    return float(np.percentile(chosen, PERCENTILE, method="higher")) if len(chosen) else 0.0


def _cpu_s(cgroups: Cgroups, name: str) -> float:
    for root in cgroups.roots:
        if (use := root / name / "cpuacct.usage").exists():
            return int(use.read_text()) / 1e9
    fields = (cgroups.cpu / name / "cpu.stat").read_text().split()
    return int(fields[fields.index("usage_usec") + 1]) / 1e6
