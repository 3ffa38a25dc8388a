"""What the controller says of a VM that is slow of its own doing: ticks by verdict, and rho_bg.

For the scenarios of one VM there is no balancer.  So its agent posts to a listener of ours, the
client's own log takes the place of the balancer's, and the controller's step judges every second
of it, with the VM as the only backend.  The VM is quiet first, so that there is a past to compare
with, then disturbed from within, then quiet again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from dial.controller.policy import Policy, PolicySource
from dial.controller.state import State
from dial.controller.step import step
from dial.intake.samples import decode_batch
from dial.model import LAB, load_model
from dial.types import (
    AgentSample,
    BackendObservation,
    Cause,
    Measured,
    NoData,
    Observation,
    RequestWindow,
    ServerState,
    Verdict,
    WeightKind,
    WeightMeaning,
)
from dial_lab.addresses import Address
from dial_lab.arrivals import Arrivals
from dial_lab.client import precise_loop
from dial_lab.logged_load import Load, Requests
from dial_lab.one_vm import start_agent
from dial_lab.processes import Children

LEARN_S, AFTER_S = 30.0, 10.0
"""Quiet time before and after."""

PERCENTILE = 95.0
_TICK_S = 1.0
_LEAST_REQUESTS = 20
_FRESH_S = 2.5
_MEANING = WeightMeaning(WeightKind.REQUESTS, minimum=1, maximum=256, zero_drains=True)


@dataclass(frozen=True, slots=True)
class Told:
    """What was said while the VM was disturbed.

    Attributes
    ----------
    ticks
        By verdict.
    named
        Part of them that name the true cause.
    rho_bg_max
        Of all that were known, 0 with none.
    evidence
        Of the last one.
    """

    ticks: dict[str, int]
    named: float
    rho_bg_max: float
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vm:
    """The VM, and what disturbs it.

    Attributes
    ----------
    address
        Of the service that the requests are for.
    arrivals
        Over the whole time.
    agent
        Further arguments of its agent.
    disturb
        Begins the disturbance, and returns what ends it.
    """

    address: Address
    arrivals: Arrivals
    agent: Sequence[str]
    disturb: Callable[[], Callable[[], None]]


def watch(
    vm: Vm,
    cause: Cause,
    children: Children,
    place: Path,
    *,
    seconds: float,
    cores: Sequence[int],
) -> Told:
    """Run the VM's requests, and judge what is seen of them.

    Parameters
    ----------
    vm
        What runs, but for its agent.
    cause
        The true one.
    children
        Whose program the agent becomes.
    place
        For its files.
    seconds
        For how long the VM is disturbed.
    cores
        The agent's.
    """
    samples: list[AgentSample] = []
    with _listener(samples) as url:
        start_agent(children, place, vm.agent, cores, controller=url)
        load = Load({"vm": vm.address}, {"vm": vm.arrivals}, {})
        ends: list[Callable[[], None]] = []

        def begin() -> None:
            ends.append(vm.disturb())

        def end() -> None:
            for each in ends:
                each()

        turns = ((LEARN_S, begin), (LEARN_S + seconds, end))
        with asyncio.Runner(loop_factory=precise_loop) as runner:
            begin_s = runner.run(load.run(LEARN_S + seconds + AFTER_S, turns))
    results = load.results()["vm"]
    children.check()
    ticks = int(LEARN_S + seconds + AFTER_S)
    verdicts = list(_judged([_observation(k, begin_s, results, samples) for k in range(ticks)]))
    disturbed = verdicts[int(LEARN_S) : int(LEARN_S + seconds)]
    known = [each.rho_bg for each in disturbed if not isinstance(each.rho_bg, NoData)]
    said = Counter(each.cause.value for each in disturbed)
    return Told(
        dict(said),
        said[cause.value] / len(disturbed),
        max(known, default=0.0),
        disturbed[-1].evidence,
    )


def _observation(
    tick: int, begin_s: float, requests: Requests, samples: Sequence[AgentSample]
) -> Observation:
    intended_s, latency_ms = requests
    from_s, to_s = tick * _TICK_S, (tick + 1) * _TICK_S
    ended_s = intended_s + latency_ms / 1e3
    ended = latency_ms[(ended_s >= from_s) & (ended_s < to_s)]
    arrived = int(((intended_s >= from_s) & (intended_s < to_s)).sum())
    t_x_ms: Measured = NoData(f"{len(ended)} requests; {_LEAST_REQUESTS} are needed")
    if len(ended) >= _LEAST_REQUESTS:
        t_x_ms = float(np.percentile(ended, PERCENTILE, method="higher"))
    now_s = begin_s + to_s
    seen = [each for each in samples if now_s - _FRESH_S < each.at_s <= now_s]
    window = RequestWindow(
        requests=len(ended),
        errors=0,
        rate_per_s=arrived / _TICK_S,
        t_x_ms=t_x_ms,
        t_x_requests=len(ended),
        t_mean_ms=float(ended.mean()) if len(ended) else NoData("no request ended"),
        t_c_ms=NoData("connections are reused"),
        served_per_s=len(ended) / _TICK_S,
    )
    backend = BackendObservation(
        "vm",
        window,
        seen[-1] if seen else NoData("no sample from an agent in this tick"),
        ServerState("vm", 100, 100, True, 0, 0, 0),
    )
    return Observation(tick, now_s, _TICK_S, "1", "roundrobin", _MEANING, (backend,), "told")


def _judged(observations: Sequence[Observation]) -> Iterator[Verdict]:
    policy = Policy.of(PolicySource.shipped(load_model(LAB), PERCENTILE))
    state = State()
    for observation in observations:
        state, plan = step(policy, state, observation)
        yield plan.backends[0].verdict


@contextmanager
def _listener(samples: list[AgentSample]) -> Iterator[str]:
    """Take an agent's posts while the context lasts; gives the address to post to."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            samples.extend(decode_batch(body).samples)
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
