"""The program: parse, wire the parts, sample until told to stop.

Signals are blocked and then *waited for* with a timeout (``sigtimedwait``): the wait
between two samples is at the same time the wait for the end.  A handler that sets an
event would do the same with a race, because it may run while the main thread holds that
event's lock.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from ipaddress import ip_address
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any

from dial.agent.client import Client, Endpoint, parse_endpoint
from dial.agent.counters import Collector
from dial.agent.files import Tree
from dial.agent.loop import run
from dial.agent.memory_reload import MemoryReload, calibrated
from dial.agent.options import Options, read_options, read_token
from dial.agent.outbox import Outbox
from dial.agent.processes import Processes
from dial.agent.push import Post, Pusher
from dial.agent.sampler import Sampler
from dial.agent.scope import group_scope, machine_scope
from dial.agent.wire import encode, sample_fields
from dial.errors import SettingError
from dial.subjects import SCHEMES, samples
from dial.types import NoData

if TYPE_CHECKING:
    from dial.agent.nats import Server

_log = logging.getLogger(__name__)

_ENDING = (signal.SIGTERM, signal.SIGINT)

_BAD_USAGE = 2

_LONGEST_FAREWELL_S = 1.0
"""How long the last samples may take to leave, within one interval at most."""


def main(argv: Sequence[str]) -> int:
    """Run the agent until SIGTERM or SIGINT.

    Parameters
    ----------
    argv
        The command line without the program's name.

    Returns
    -------
    int
        0, or 2 when the command line or the token cannot be used.
    """
    try:
        options = read_options(argv)
        with _log_to_stderr(logging.WARNING if options.once else logging.INFO), _signals_blocked():
            # What importing has left over would take memory for as long as the agent runs.
            gc.collect()
            tree = Tree()
            with _partition(options, tree) as services, _charged_quotas(options, tree):
                sampler = _sampler(options, tree, services)
                return _once(options, sampler) if options.once else _push(options, sampler)
    except SettingError as error:
        sys.stderr.write(f"dial agent: {error}\n")
        return _BAD_USAGE
    except SystemExit as end:  # argparse's way to say that it has said it all
        return end.code if isinstance(end.code, int) else 0


def _sampler(options: Options, tree: Tree, services: Collector[Any] | NoData) -> Sampler:
    named = options.pids or options.pid_files or options.process_names
    processes = (
        Processes(tree, options.pids, options.pid_files, options.process_names) if named else None
    )
    scope = (
        machine_scope(tree, processes, options.capacity_cores)
        if options.cgroup is None
        else group_scope(tree, options.cgroup, processes, options.capacity_cores)
    )
    collectors, absent = list(scope.collectors), dict(scope.absent)
    probe = _memory_probe(options)
    if isinstance(probe, NoData):
        absent |= dict.fromkeys(MemoryReload.metrics, probe)
    else:
        collectors.append(probe)
    deferral = _deferral(options, tree)
    if isinstance(deferral, NoData):
        absent |= dict.fromkeys(("deferral_fraction", "interference_level"), deferral)
        absent["top_resource"] = deferral
    else:
        collectors.append(deferral)
    if isinstance(services, NoData):
        absent |= dict.fromkeys(("own_services_cores", "targets_missed_s"), services)
    else:
        collectors.append(services)
    charge = _net_charge(options, tree)
    if isinstance(charge, NoData):
        absent |= dict.fromkeys(("net_softirq_cores", "net_softirq_shown_cores"), charge)
    else:
        collectors.append(charge)
    return Sampler(collectors, absent, time.time, time.monotonic)


def _charged_quotas(options: Options, tree: Tree) -> AbstractContextManager[object]:
    if options.net_charge_quotas is None or options.once:
        return nullcontext()
    from dial.netcharge.run import charging  # noqa: PLC0415 - as above

    return charging(options.net_charge_quotas, tree)


def _net_charge(options: Options, tree: Tree) -> Collector[Any] | NoData:
    if not options.net_charge:
        return NoData("--net-charge is not given")
    from dial.netcharge.collect import collector  # noqa: PLC0415 - as above

    return collector(tree, options.cgroup)


@contextmanager
def _partition(options: Options, tree: Tree) -> Iterator[Collector[Any] | NoData]:
    if options.partition is None or options.once:
        yield NoData("--partition is not given" if options.partition is None else "--once")
        return
    # Most agents need neither it nor the memory that it takes.
    from dial.partition.own import OwnServices  # noqa: PLC0415
    from dial.partition.run import partitioning  # noqa: PLC0415

    with partitioning(options.partition, tree, dry_run=options.partition_dry_run) as managed:
        yield OwnServices(managed)


def _deferral(options: Options, tree: Tree) -> Collector[Any] | NoData:
    # Most agents need neither of the two modules.
    if options.pbox_page is not None:
        from dial.pbox.application import ApplicationPages, owner_ids  # noqa: PLC0415

        owners = owner_ids(options.pbox_owners)
        return ApplicationPages(options.pbox_page, owners, tree, time.monotonic_ns)
    if options.postgres is not None:
        from dial.pbox.postgres import WaitEvents  # noqa: PLC0415

        return WaitEvents(options.postgres, time.monotonic)
    return NoData("nothing to read it from: name it with --pbox-page or --postgres")


def _memory_probe(options: Options) -> MemoryReload | NoData:
    if not options.memory_probe:
        return NoData("--memory-probe on is not given")
    random = Random()  # noqa: S311 - places in memory
    return calibrated(
        random, options.interval_s, time.perf_counter_ns, time.thread_time_ns, time.sleep
    )


def _once(options: Options, sampler: Sampler) -> int:
    sampler.take()
    if not _stopped(options.interval_s) and (sample := sampler.take()):
        sys.stdout.write(json.dumps(sample_fields(sample), indent=2) + "\n")
    return 0


def _push(options: Options, sampler: Sampler) -> int:
    agent = f"{os.uname().nodename}:{os.getpid()}"
    endpoint, post = _controller(options, agent)
    _warn_of_clear_text(endpoint)
    outbox = Outbox(options.buffer)
    random = Random()  # noqa: S311 - jitter
    pusher = Pusher(outbox, post, partial(encode, options.backend or "", agent), random)
    # A daemon: the process must not outlive its signal because a controller hangs.
    thread = Thread(target=pusher.run, name="push", daemon=True)
    thread.start()
    _log.info("agent %s samples every %g s for %s", agent, options.interval_s, endpoint)
    phase = random.random()
    run(sampler, outbox.put, options.interval_s, time.monotonic, _stopped, phase=phase)
    outbox.close()
    thread.join(min(_LONGEST_FAREWELL_S, options.interval_s))
    _log.info(
        "agent ends: %d samples delivered, %d refused, %d dropped, %d not sent",
        pusher.delivered,
        pusher.refused,
        outbox.dropped,
        len(outbox),
    )
    return 0


def _controller(options: Options, agent: str) -> tuple[Endpoint | Server, Post]:
    """Where samples go, and what sends them there."""
    url = options.controller or ""
    cert_file, key_file = options.cert_file, options.key_file
    if not url.startswith(SCHEMES):
        endpoint = parse_endpoint(url)
        token = read_token(options.token_file, os.environ)
        client = Client(endpoint, token, options.ca_file, cert_file=cert_file, key_file=key_file)
        return endpoint, client.post
    from dial.agent.nats import NatsClient, parse_server  # noqa: PLC0415 - only for a fleet

    server = parse_server(url)
    publisher = NatsClient(
        server,
        samples(server.service, options.backend or ""),
        agent,
        read_token(options.token_file, os.environ),
        options.ca_file,
        cert_file=cert_file,
        key_file=key_file,
    )
    return server, publisher.post


def _stopped(timeout_s: float) -> bool:
    # CPython fills the answer from nowhere when the wait is interrupted and its time is over: so
    # it is after SIGSTOP and SIGCONT, or a freezer, and no signal has come.
    came = signal.sigtimedwait(_ENDING, max(0.0, timeout_s))
    return came is not None and came.si_signo in _ENDING


def _warn_of_clear_text(endpoint: Endpoint | Server) -> None:
    try:
        local = ip_address(endpoint.host).is_loopback
    except ValueError:
        local = endpoint.host == "localhost"
    if not endpoint.secure and not local:
        _log.warning("the token travels in clear text to %s; use https or tls", endpoint.host)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _log_to_stderr(least: int) -> Iterator[None]:
    parts = ("agent", "limits", "netcharge", "partition")
    loggers = [logging.getLogger(f"dial.{part}") for part in parts]
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(least)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
