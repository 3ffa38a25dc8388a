"""The backend that DIAL is to look after: its frontends, mode, algorithm and servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dial.adapter import Finding
from dial.errors import BalancerRefused
from dial.types import WeightKind
from dial_haproxy import state
from dial_haproxy.cfg.findings import error, in_doubt, note, ok, warning
from dial_haproxy.cfg.lines import Line
from dial_haproxy.cfg.sections import Config, Section
from dial_haproxy.cfg.servers import has_rules, servers

DEFAULT_ALGORITHM = "roundrobin"
"""Without a ``balance`` line (configuration manual, 4.2); random from 3.3 on, as good to us."""

DEFAULT_MODE = "tcp"

MEANINGS = {
    WeightKind.REQUESTS: "a share of the requests",
    WeightKind.CONCURRENCY: "a share of the requests in flight",
    WeightKind.SERVICE_RATE: "a service rate: requests go where the delay to be expected is least",
    WeightKind.DRAW: "the probability of being drawn",
}
_SUGGESTED = {"static-rr": "roundrobin"}
BEST = "leastconn"

SOONER = (
    f"balance {BEST} serves requests sooner than any other, with DIAL's weights too: it spares a "
    "slow server before DIAL has found out why it is slow"
)
"""Of the algorithms that weights work with; simulated and measured in decision 35."""


def services(config: Config) -> list[Section]:
    """Backends with servers, ``listen`` sections among them."""
    return [s for s in config.of_kind("backend", "listen") if servers(s)]


def frontends(config: Config, service: Section) -> tuple[list[Section], list[Section]]:
    """Sections whose requests reach a backend, and those of which it cannot be told."""
    sure, unsure = [], []
    for section in config.of_kind("frontend", "listen"):
        names = [
            line.texts[1]
            for line in section.effective("use_backend")
            if not line.negated and len(line.texts) > 1
        ]
        names += [
            line.texts[1]
            for line in section.effective("default_backend")[-1:]
            if not line.negated and len(line.texts) > 1
        ]
        if section is service or service.name in names:
            sure.append(section)
        elif any("%[" in name or "$" in name for name in names):
            unsure.append(section)
    return sure, unsure


def mode(section: Section) -> Line | None:
    """The ``mode`` line in force."""
    lines = [line for line in section.effective("mode") if len(line.texts) > 1]
    return lines[-1] if lines else None


def is_http(section: Section) -> bool:
    """Whether a proxy looks at HTTP requests."""
    line = mode(section)
    return (line.texts[1] if line else DEFAULT_MODE) == "http"


def check_mode(section: Section) -> Iterator[Finding]:
    """DIAL sees requests, so HAProxy must."""
    line = mode(section)
    if line is not None and not section.certain(line):
        yield in_doubt(line, f"{section}: mode", line.doubt)
    elif not is_http(section):
        present = line.statement if line else f"no mode, and so {DEFAULT_MODE}"
        own = line is not None and section.has(line)
        yield error(
            line if line is not None and own else section.header,
            f"{section}: {present}: HAProxy counts and logs connections, DIAL needs requests",
            section.instead(line, "mode http"),
            fix="only where this carries HTTP that HAProxy can read",
        )


def algorithm_line(section: Section) -> Line | None:
    """The ``balance`` line in force."""
    lines = [line for line in section.effective("balance") if len(line.texts) > 1]
    return lines[-1] if lines else None


def algorithm_once_mended(section: Section) -> str:
    """What ``balance`` says, or is to say; empty where the file does not say it for certain."""
    line = algorithm_line(section)
    if line is None:
        return DEFAULT_ALGORITHM
    if not section.certain(line):
        return ""
    algorithm = line.texts[1].partition("(")[0]
    return algorithm if state.takes_weights(algorithm) else _better(algorithm)


def check_algorithm(section: Section) -> Iterator[Finding]:
    """Whether weights move load under the ``balance`` in force."""
    line = algorithm_line(section)
    if line is None:
        yield ok(
            section.header,
            f"{section}: no balance line, and so {DEFAULT_ALGORITHM} (random from HAProxy 3.3 on)",
        )
        if not has_rules(section):
            yield note(section.header, f"{section}: {SOONER}")
        return
    if not section.certain(line):
        yield in_doubt(line, f"{section}: balance", line.doubt)
        return
    algorithm = line.texts[1].partition("(")[0]
    try:
        meaning = state.weight_meaning(section.name, algorithm, by_delay=has_rules(section))
    except BalancerRefused as refused:
        statement = f"balance {_better(algorithm)}"
        own = section.has(line)
        yield error(
            line if own else section.header,
            str(refused),
            section.instead(line, statement),
            fix=_instead(algorithm),
        )
    else:
        yield ok(line, f"{section}: {line.statement}; a weight is {MEANINGS[meaning.kind]}")
        if meaning.kind not in (WeightKind.CONCURRENCY, WeightKind.SERVICE_RATE):
            yield note(line, f"{section}: {SOONER}")


def _better(algorithm: str) -> str:
    """What to write for an algorithm that weights do not work with."""
    return _SUGGESTED.get(algorithm, BEST)


def _instead(algorithm: str) -> str:
    if algorithm in ("static-rr", "first"):
        return ""
    return (
        "keep it where a client or key must stay with its server, for caches or sessions: DIAL is "
        "then of no use here; 'cookie' keeps sessions under any algorithm, without rules for the "
        "shortest expected delay"
    )


def check_new_connections(
    section: Section, in_front: Sequence[Section], expected: bool
) -> Iterator[Finding]:
    """Whether the option ``new_connections`` says what the configuration does."""
    closing = _closes(section)
    if closing is None and in_front and all(_closes(frontend) for frontend in in_front):
        closing = _closes(in_front[0])
    if expected and closing is None:
        yield warning(
            section.header,
            f"{section}: DIAL's option new_connections is true, but connections to servers are "
            "reused: their connect times of 0 ms are no measurements",
            section.starts_with("option httpclose"),
            fix="or new_connections = false in DIAL's configuration",
        )
    elif closing is not None and not expected:
        yield note(
            closing,
            f"{section}: '{closing.statement}': each request opens a connection; with "
            "new_connections = true DIAL can use the connect times",
        )


def _closes(section: Section) -> Line | None:
    """The option by which each request opens a connection to its server, if there is one."""
    last: dict[str, Line] = {}
    for line in section.effective("option"):
        if line.texts[1:] and line.texts[1] in ("httpclose", "forceclose", "http-server-close"):
            last[line.texts[1]] = line
    return next((line for line in last.values() if not line.negated), None)
