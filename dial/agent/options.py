"""The agent's command line and its token, checked before anything starts."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dial.errors import SettingError

TOKEN_VARIABLE = "DIAL_TOKEN"  # noqa: S105 - a variable's name

_MOST_NAME_CHARS = 256
"""Of a backend's name; the controller refuses longer ones."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the admin asked for."""

    controller: str | None
    backend: str | None
    cgroup: str | None
    pids: tuple[int, ...]
    pid_files: tuple[str, ...]
    process_names: tuple[str, ...]
    interval_s: float
    capacity_cores: float | None
    memory_probe: bool
    pbox_page: str | None
    pbox_owners: tuple[str, ...]
    postgres: str | None
    partition: str | None
    partition_dry_run: bool
    net_charge: bool
    net_charge_quotas: str | None
    buffer: int
    token_file: str | None
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    once: bool


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which is also its help."""
    parser = argparse.ArgumentParser(
        prog="dial agent",
        description="Measures this VM (or one cgroup of it) and pushes what it sees to the "
        f"controller. The token comes from --token-file or {TOKEN_VARIABLE}, never from the "
        "command line.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--controller",
        metavar="URL",
        help="http[s]://HOST[:PORT], or of a fleet nats://HOST[:PORT]/SERVICE, tls://...",
    )
    parser.add_argument(
        "--backend", metavar="NAME", help="this VM's name at the load balancer, such as s1"
    )
    parser.add_argument(
        "--scope", choices=("vm", "cgroup"), help="cgroup if --cgroup is given, else vm"
    )
    parser.add_argument(
        "--cgroup", metavar="NAME", help="group to measure, a path below the hierarchies' roots"
    )
    parser.add_argument(
        "--pid", type=int, action="append", default=[], help="process of the application"
    )
    parser.add_argument(
        "--pid-file", metavar="FILE", action="append", default=[], help="file that holds its id"
    )
    parser.add_argument(
        "--process-name", metavar="NAME", action="append", default=[], help="or its name"
    )
    parser.add_argument(
        "--interval-s", type=float, default=1.0, metavar="S", help="0.1 to 60; default 1"
    )
    parser.add_argument(
        "--cpu-capacity-cores",
        type=float,
        metavar="CORES",
        help="CPU this VM may use when nobody contends for it, where it cannot be seen",
    )
    parser.add_argument(
        "--memory-probe",
        choices=("on", "off"),
        default="off",
        help="time how long cache lines take to come back, for a model that was fitted with it; "
        "no shipped one was; default off",
    )
    parser.add_argument(
        "--pbox-page",
        metavar="PATH",
        help="statistics page of an application with pBoxes, such as /dev/shm/pbox-4711.page; "
        "may hold wildcards",
    )
    parser.add_argument(
        "--pbox-owner",
        metavar="USER",
        action="append",
        default=[],
        help="user whose pages are believed; default the agent's own",
    )
    parser.add_argument(
        "--postgres",
        metavar="CONNINFO",
        help="instead of a page: PostgreSQL server whose wait events to read, such as service=app",
    )
    parser.add_argument(
        "--partition",
        metavar="FILE",
        help="divide CPU, memory and more among this VM's own services so that all meet their "
        "latency targets, as the file says; every limit is put back at the end",
    )
    parser.add_argument(
        "--partition-dry-run",
        action="store_true",
        help="with --partition: log what would be written, and write nothing",
    )
    parser.add_argument(
        "--net-charge",
        action="store_true",
        help="count network processing in softirqs, which no accounting shows, as the VM's own "
        "use of its CPU; by eBPF, else by packets times a calibrated cost",
    )
    parser.add_argument(
        "--net-charge-quotas",
        metavar="FILE",
        help="charge the CPU quotas of this VM's services for their packets, as the file says; "
        "every quota is put back at the end",
    )
    parser.add_argument(
        "--buffer",
        type=int,
        default=120,
        metavar="N",
        help="samples kept while the controller is away; default 120",
    )
    parser.add_argument("--token-file", metavar="FILE", help="file that holds the token")
    parser.add_argument("--ca-file", metavar="FILE", help="certificates to trust for https")
    parser.add_argument(
        "--cert-file", metavar="FILE", help="own certificate, where the controller asks for one"
    )
    parser.add_argument("--key-file", metavar="FILE", help="its private key")
    parser.add_argument(
        "--once",
        action="store_true",
        help="print one sample as JSON, with the reason for each missing signal, and exit",
    )
    return parser


def read_options(argv: Sequence[str]) -> Options:
    """Read and check the command line.

    Raises
    ------
    SettingError
        If a value is not allowed; the message names option, value and what is allowed.
    SystemExit
        From argparse: 2 for an option it does not know, 0 after ``--help``.
    """
    given = parser().parse_args(argv)
    options = Options(
        controller=given.controller,
        backend=given.backend,
        cgroup=given.cgroup,
        pids=tuple(given.pid),
        pid_files=tuple(str(Path(name).absolute()) for name in given.pid_file),
        process_names=tuple(given.process_name),
        interval_s=given.interval_s,
        capacity_cores=given.cpu_capacity_cores,
        memory_probe=given.memory_probe == "on",
        pbox_page=given.pbox_page,
        pbox_owners=tuple(given.pbox_owner),
        postgres=given.postgres,
        partition=given.partition,
        partition_dry_run=given.partition_dry_run,
        net_charge=given.net_charge,
        net_charge_quotas=given.net_charge_quotas,
        buffer=given.buffer,
        token_file=given.token_file,
        ca_file=given.ca_file,
        cert_file=given.cert_file,
        key_file=given.key_file,
        once=given.once,
    )
    _check(options, given.scope)
    return options


def _check(options: Options, scope: str | None) -> None:
    if scope == "cgroup" and options.cgroup is None:
        raise SettingError("--scope cgroup: needs --cgroup NAME")
    if scope == "vm" and options.cgroup is not None:
        raise SettingError(f"--cgroup {options.cgroup}: not allowed with --scope vm")
    # A name with ".." would leave the hierarchy; an empty one is the machine itself.
    if options.cgroup is not None and (
        not options.cgroup.strip("/") or ".." in options.cgroup.split("/")
    ):
        raise SettingError(f"--cgroup {options.cgroup!r}: allowed: a path such as machines/m1")
    if not 0.1 <= options.interval_s <= 60.0:
        raise SettingError(f"--interval-s {options.interval_s}: allowed: 0.1 to 60")
    cores = options.capacity_cores
    if cores is not None and not (math.isfinite(cores) and cores > 0.0):
        raise SettingError(f"--cpu-capacity-cores {cores}: allowed: more than 0")
    if not 1 <= options.buffer <= 86_400:
        raise SettingError(f"--buffer {options.buffer}: allowed: 1 to 86400 samples")
    for pid in options.pids:
        if pid < 1:
            raise SettingError(f"--pid {pid}: allowed: 1 or more")
    _check_deferral(options)
    _check_pairs(options)
    if options.once:
        return
    if options.controller is None or options.backend is None:
        raise SettingError("--controller and --backend are needed, unless with --once")
    if not 1 <= len(options.backend) <= _MOST_NAME_CHARS:
        raise SettingError(f"--backend {options.backend[:40]!r}: allowed: 1 to 256 characters")


def _check_pairs(options: Options) -> None:
    if options.partition_dry_run and options.partition is None:
        raise SettingError("--partition-dry-run: needs --partition FILE")
    if options.partition is not None and options.net_charge_quotas is not None:
        raise SettingError("--net-charge-quotas: not allowed with --partition; both write quotas")
    if (options.cert_file is None) != (options.key_file is None):
        raise SettingError("--cert-file and --key-file: give both or neither")


def _check_deferral(options: Options) -> None:
    if options.pbox_page is None:
        if options.pbox_owners:
            raise SettingError("--pbox-owner: needs --pbox-page PATH")
    elif options.postgres is not None:
        raise SettingError("--postgres: not allowed with --pbox-page; one VM has one application")
    elif not options.pbox_page.startswith("/"):
        raise SettingError(f"--pbox-page {options.pbox_page!r}: allowed: an absolute path")


def read_token(token_file: str | None, environment: Mapping[str, str]) -> str:
    """Return the token.

    Raises
    ------
    SettingError
        If there is none, or it holds what a header cannot carry.  The message never holds
        the token; ``http.client``'s own complaint about a bad header would.
    """
    if token_file is not None:
        where = f"--token-file {token_file}"
        try:
            token = Path(token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingError(f"{where}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise SettingError(f"{where}: not text") from None
    else:
        where = TOKEN_VARIABLE
        token = environment.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise SettingError(
            f"{where}: no token in it; put one in the file named by --token-file "
            f"or in {TOKEN_VARIABLE}"
        )
    if not all("!" <= character <= "~" for character in token):
        raise SettingError(f"{where}: a token is one line of visible ASCII, without blanks")
    return token
