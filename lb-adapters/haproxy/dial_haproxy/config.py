"""What an HAProxy administrator adds, as text that docs, lab and ``check`` share.

One source for these lines, because a log format that differs by one comma from what the
parser reads fails silently: every line is then malformed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

LOG_FORMAT = (
    "%b,%s,%[var(txn.dial_t0)],%[var(txn.dial_t1)],%TR,%Tc,%Tr,%Ta,%ST,%tsc,%sc,%rc,"
    "%[var(txn.dial_route)]"
)
"""The compact line that :class:`dial_haproxy.parser.LogParser` reads as format ``dial``."""

CLOCK = (
    "http-request set-var(txn.dial_t0) date(0,us)",
    "http-after-response set-var(txn.dial_t1) date(0,us)",
)
"""When a request came and when its answer began: HAProxy's own timers are whole milliseconds."""

RING_TARGET = "log ring@{name} format raw local0"

LOG_FORMAT_LINE = f'log-format "{LOG_FORMAT}"'

FRONTEND = "".join(
    f"    {statement}\n" for statement in (*CLOCK, RING_TARGET.format(name="dial"), LOG_FORMAT_LINE)
)
"""For each frontend whose requests reach the service."""

HTTPLOG = "    option httplog\n"
"""For each frontend, where the log is HAProxy's standard one."""

RING = """\
ring dial
    format raw
    maxlen 1200
    size 1048576
    timeout connect 5s
    timeout server 10s
    server dial {host}:{port} log-proto legacy
"""
"""A section of its own.  A full ring forgets its oldest lines; no request waits for it."""


CHOSEN = "use-server %[var(txn.dial_server)]"
"""The last of the rules of :func:`expected_delay` begins so."""

NAMES_APART = "/"
"""Between two names of servers, none of which can hold it."""

_MOST = 2**63 - 1
"""HAProxy's largest number."""

LEASTCONN = "leastconn"
"""The algorithm of ``balance`` that is the shortest expected delay where all weights are alike."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """Lines for ``haproxy.cfg``, by the section they belong to."""

    in_global: str
    section: str
    """A section of its own, the ring; empty where none is needed."""
    in_frontend: str

    def __str__(self) -> str:
        return f"global\n{self.in_global}\n{self.section}\nfrontend ...\n{self.in_frontend}"


def socket_line(path: str) -> str:
    """The line that opens the runtime socket, readable by HAProxy's group only."""
    return f"    stats socket {path} mode 660 level admin\n"


def snippet(
    socket: str = "/run/haproxy/dial.sock", log_host: str = "127.0.0.1", log_port: int = 5140
) -> Snippet:
    """Lines for format ``dial``: a raw stream over TCP out of a ring buffer.

    A full ring forgets its oldest lines; it never makes a request wait.

    Parameters
    ----------
    socket
        Path (or ``ipv4@host:port``) of the runtime socket.
    log_host, log_port
        Where the adapter listens (option ``log``).

    Examples
    --------
    >>> print(snippet(log_port=5141).section.splitlines()[-1].strip())
    server dial 127.0.0.1:5141 log-proto legacy
    """
    ring = RING.format(host=log_host, port=log_port)
    return Snippet(in_global=socket_line(socket), section=ring, in_frontend=FRONTEND)


@dataclass(frozen=True, slots=True)
class Rules:
    """Lines for ``haproxy.cfg`` by which a request goes where it is to be served soonest."""

    in_global: tuple[str, ...]
    in_backend: tuple[str, ...]


def expected_delay(
    service: str,
    servers: Sequence[str],
    *,
    limited: Collection[str] = (),
    backups_at_once: int = 0,
    balance: str = LEASTCONN,
) -> Rules:
    """The rules: the shortest expected delay, with weights for service rates.

    Of the servers that are up the one with the least (requests + 1) / weight takes the request,
    requests being those that it works on and those in its queue; of several such ones the one
    whose last request came or ended longest ago, as leastconn has it.  But leastconn takes an idle
    server whatever its weight.  Where all weights are alike that is leastconn itself, so beside
    ``balance leastconn`` the rules then leave it to choose, and cost a request next to nothing.
    Weight 0 drains, as ever.  Rules cannot see which server an admin's ``state drain`` is for, but
    that HAProxy counts fewer servers than they do: then, and where no server can be chosen,
    ``balance`` chooses.  So it does while a server that has no rules is up, for then HAProxy counts
    more.  Where none but backup servers can be chosen it counts those, and they may be as many as
    servers that drain: rules then choose only among more servers than there can be backup ones.
    A server that is full is left out, for a request sent to it would wait in a queue of its own.
    Where all are, ``balance`` has it wait for whoever is free first.

    Parameters
    ----------
    service
        Name of the backend.
    servers
        Names of its servers, backup ones left out.
    limited
        Those of them with a ``maxconn``.
    backups_at_once
        Backup servers that HAProxy uses at the same time: with ``option allbackups`` all, else 1,
        and 0 where there is none.
    balance
        The argument of ``balance``.

    Examples
    --------
    >>> expected_delay("app", ["s1", "s2"]).in_backend[-1]
    'use-server %[var(txn.dial_server)] if { nbsrv(app),sub(txn.dial_usable) eq 0 }'
    """
    prefix = _prefix(service)
    turn = f"{prefix}turn"
    last = [f"{prefix}last.{_word(name)}" for name in servers]
    set_var = "http-request set-var(txn.dial_{}) {}".format
    rules: list[str] = []
    uneven: list[str] = []
    weights = [f"srv_weight({service}/{name})" for name in servers]
    if balance == LEASTCONN and len(weights) > 1:
        rules.append(set_var("weight", weights[0]))
        # One each: HAProxy takes 64 words a line.
        rules += [
            set_var("uneven", _if("bool(true)", f"!{{ {it},sub(txn.dial_weight) eq 0 }}"))
            for it in weights[1:]
        ]
        # What these rules then leave unset makes the conditions of all others false.
        uneven = ["{ var(txn.dial_uneven) -m bool }"]
    rules += [
        set_var("least", _if(f"int({_MOST})", *uneven)),
        # Always: another section's rules may have counted for the same request.
        set_var("usable", "int(0)"),
    ]
    for name, weight, changed in zip(servers, weights, last, strict=True):
        server = f"{service}/{name}"
        # Of one without a limit, or with 0, it is -1.
        free = [f"!{{ srv_conn_free({server}) eq 0 }}"] if name in limited else []
        up, it = f"{{ srv_is_up({server}) }}", f"{{ var(txn.dial_server) -m str {name} }}"
        # Below, 32 bits for the turn; above, the delay with 16 bits for its fraction.  What does
        # not go into 63 bits is _MOST, and so is a delay at weight 0.
        delay = (
            f"srv_conn({server}),add(txn.dial_queue),add(1),mul(65536),div(txn.dial_weight),"
            f"mul(4294967296),add({changed})"
        )
        less = "{ var(txn.dial_delay),sub(txn.dial_least) lt 0 }"
        rules += [
            set_var("weight", _if(weight, *uneven)),
            set_var("queue", _if(f"srv_queue({server})", *uneven)),
            set_var("delay", _if(delay, *uneven)),
            set_var(
                "usable",
                _if(
                    "var(txn.dial_usable),add(1)",
                    *uneven,
                    "{ var(txn.dial_weight) -m int gt 0 }",
                    up,
                ),
            ),
            set_var("server", _if(f"str({name})", less, up, *free)),
            set_var("least", _if("var(txn.dial_delay)", it)),
        ]
    for event in ("http-request", "http-after-response"):
        rules.append(_if(f"{event} set-var({turn}) var({turn}),add(1)", *uneven))
        rules += [
            f"{event} set-var({changed}) var({turn}) if {{ var(txn.dial_server) -m str {name} }}"
            for name, changed in zip(servers, last, strict=True)
        ]
    chosen = [f"{{ nbsrv({service}),sub(txn.dial_usable) eq 0 }}"]
    if backups_at_once:
        chosen.append(f"{{ var(txn.dial_usable) -m int gt {backups_at_once} }}")
    rules.append(_if(CHOSEN, *chosen))
    in_global = [f"set-var {rules_variable(service)} str({NAMES_APART.join(servers)})"]
    in_global += [f"set-var {name} int(0)" for name in (turn, *last)]
    return Rules(tuple(in_global), tuple(rules))


def _if(statement: str, *conditions: str) -> str:
    """A statement that is for where all conditions hold."""
    return f"{statement} if {' '.join(conditions)}" if conditions else statement


def rules_variable(service: str) -> str:
    """The variable of the process that names the servers that have rules."""
    return f"{_prefix(service)}servers"


def is_rules_variable(service: str, name: str) -> bool:
    """Whether a variable of the process belongs to the rules for a backend."""
    return name.startswith(tuple(_prefix(service) + end for end in ("servers", "turn", "last.")))


def _prefix(service: str) -> str:
    """How the names of the rules' own variables begin.

    That of ``my`` begins that of ``my.app`` as well, so what follows it must be looked at too.
    """
    return f"proc.dial.{_word(service)}."


def _word(name: str) -> str:
    """A name in the letters that HAProxy has for those of variables, no two names in the same.

    What is no letter, digit or ``_`` is written as in a URL, with ``.`` for ``%``.

    Examples
    --------
    >>> _word("my-app_1")
    'my.2dapp_1'
    """
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f".{ord(found[0]):02x}", name)


def statements(lines: str) -> list[str]:
    """Lines without their indentation."""
    return [line.strip() for line in lines.splitlines()]
