"""One policy through quiet, contended and recovered phase, on machines that are there."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from dial_lab import controlled, haproxy, neighbour, reaction
from dial_lab.loadgen import DRAIN_S, Results
from dial_lab.policies import Policy
from dial_lab.processes import Children
from dial_lab.reaction import Phases
from dial_lab.report import BlockResult
from dial_lab.topology import Machine, private_directory

_HEAD_START_S = 1.0
"""From starting the generator to its first request: Python and numpy have to load."""

WARM_UP_S = 3.0
"""Load before the quiet phase that counts nowhere: connections open, caches fill."""


@dataclass(frozen=True, slots=True)
class Site:
    """What all blocks of a run share."""

    machines: tuple[Machine, ...]
    ports: Mapping[str, int]
    """The application's port by machine."""
    harness_cores: tuple[int, ...]
    rho_bg: float | None
    """What the neighbour is told to take of the first machine; ``None`` for no neighbour."""
    rate_per_s: float
    percentile: float
    seed: int
    phases: Phases


@dataclass
class Progress:
    """What the live view shows of the block that runs; filled by :func:`run_block`."""

    policy: str
    phase: str = "starting"
    elapsed_s: float = 0.0
    """Since the start of the quiet phase; negative during warm-up."""
    load: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Rate and T_x by backend, from the generator."""
    plan: dict[str, Any] | None = None
    """The newest plan in the recording."""


def run_block(
    site: Site,
    policy: Policy,
    stream: int,
    directory: Path,
    show: Callable[[Progress], None],
) -> BlockResult:
    """Run one block; leaves logs, results and recording in ``directory``.

    Parameters
    ----------
    site
        Machines, applications and load.
    policy
        How requests are spread.
    stream
        Which stream of arrivals: the round, so that all policies of a round get the same.
    directory
        For files; is made.
    show
        Called about twice a second.

    Raises
    ------
    LabError
        If a program ends before its time.
    """
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    phases = site.phases
    progress = Progress(policy.name)
    balancer_port, api_port, log_port = haproxy.free_ports(3)
    with (
        private_directory() as private,
        Children(directory) as children,
    ):
        balancer = haproxy.Balancer(balancer_port, private / "haproxy.sock")
        control = (
            controlled.prepare(directory, private, api_port, log_port)
            if policy.controlled
            else None
        )
        show(progress)
        text = haproxy.config(
            policy.balance, site.ports, balancer, log_port if control is not None else None
        )
        haproxy.start(children, directory, text, balancer, site.harness_cores)
        if control is not None:
            controlled.start(
                children,
                policy,
                control,
                balancer,
                machines=site.machines,
                cores=site.harness_cores,
                percentile=site.percentile,
            )
            controlled.await_samples(children, control, policy.interval_s or 0.0)
        start = time.monotonic() + _HEAD_START_S
        generator = _start_generator(
            site, children, stream=stream, directory=directory, port=balancer_port, start=start
        )
        reader = _follow(generator.stdout, progress)
        tail = _Tail(control.recording) if control is not None else None
        origin = start + WARM_UP_S
        origin_wall_s = time.time() + origin - time.monotonic()

        def wait_until(moment: float) -> None:
            while (left_s := moment - time.monotonic()) > 0:
                children.check()
                progress.elapsed_s = time.monotonic() - origin
                if tail is not None:
                    progress.plan = tail.newest_plan() or progress.plan
                show(progress)
                time.sleep(min(0.5, left_s))

        progress.phase = "warm-up"
        wait_until(origin)
        progress.phase = "quiet"
        wait_until(origin + phases.quiet_s)
        progress.phase = "contended"
        other = None
        if site.rho_bg is not None:
            other = neighbour.start_cpu(children, site.machines[0], site.rho_bg, phases.contended_s)
        wait_until(origin + phases.end_of_contention_s)
        if other is not None:
            children.stop(other)
        progress.phase = "recovered"
        wait_until(origin + phases.end_s)
        generator.wait(timeout=DRAIN_S + 5.0)
        reader.join()
        children.stop(generator)
    results = Results.load(directory / "requests.npz").shifted(-WARM_UP_S)
    judged = None
    if control is not None:
        victim = site.machines[0].name
        judged = reaction.read(control.recording, victim, origin_wall_s, phases)
    return BlockResult(policy.name, phases, results, judged)


def _start_generator(
    site: Site, children: Children, *, stream: int, directory: Path, port: int, start: float
) -> subprocess.Popen[bytes]:
    options = {
        "port": port,
        "backends": ",".join(site.ports),
        "seed": site.seed,
        "stream": stream,
        "rate": site.rate_per_s,
        "duration": WARM_UP_S + site.phases.end_s,
        "percentile": site.percentile,
        "start": start,
        "out": directory / "requests.npz",
    }
    argv = [sys.executable, "-m", "dial_lab.loadgen"]
    argv += [f"--{name}={value}" for name, value in options.items()]
    return children.start(
        "loadgen", argv, cores=site.harness_cores, stdout=subprocess.PIPE, finite=True
    )


def _follow(lines: IO[bytes] | None, progress: Progress) -> threading.Thread:
    """Keep the newest line of the generator; a pipe nobody reads would stop it."""

    def follow() -> None:
        for line in lines or ():
            progress.load = json.loads(line)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    return thread


class _Tail:
    """Reads what a recording has grown by; for the live view only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def newest_plan(self) -> dict[str, Any] | None:
        """The newest plan since the last call."""
        if not self._path.exists():
            return None
        plan = None
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._at += len(line)
                document = json.loads(line)
                plan = document.get("plan", plan)
        return plan


def total_s(phases: Phases, policies: Sequence[Policy]) -> float:
    """About how long one round takes, for the progress bar."""
    return sum(phases.end_s + WARM_UP_S + 2.5 + 1.5 * (p.interval_s or 0.0) for p in policies)
