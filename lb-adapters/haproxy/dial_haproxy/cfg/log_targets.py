"""How a frontend logs: its format, and where its lines go."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dial_haproxy.cfg.addresses import SYSLOG_PORT, log_address, same, stream_address
from dial_haproxy.cfg.lines import Line
from dial_haproxy.cfg.log_format import reading
from dial_haproxy.cfg.sections import Config, Section
from dial_haproxy.options import Address, LogFormat

DEFAULT_ADDRESS = Address(scheme="tcp", host="127.0.0.1", port=5140)
"""Where README lets DIAL listen."""

SYSLOG_FILE = Address(scheme="file", path="/var/log/haproxy.log")
"""Where Debian's rsyslog writes what HAProxy sends it (its 49-haproxy.conf)."""

_ORDER = ("file", "syslog", "unixgram", "tcp")
"""Ways for a log to come, the best last: a ring's stream never waits, and loses least."""

_PAIRS = ("len", "format", "sample", "profile")
_SAMPLE = re.compile(r"([0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*):([0-9]{1,6})")
_SHOWN_LEVELS = ("info", "debug")  # a request's line is info
_NAMED_FORMATS: dict[str, LogFormat | None] = {
    "httplog": "httplog",
    "httpslog": "httplog",  # the same fields first
    "tcplog": None,
}
_NAMED_LINES = [(name,) for name in _NAMED_FORMATS]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How DIAL is to get its log: the options ``log``, ``log_format`` and ``sampled``."""

    address: Address
    format: LogFormat
    one_in: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """One log target in force in a frontend."""

    line: Line
    """Where it is written: there, in its defaults, or in ``global``."""
    addresses: tuple[Address, ...]
    """What it leads to; empty where DIAL cannot listen."""
    certain: bool

    @property
    def one_in(self) -> float:
        """Of how many requests one is logged."""
        texts = self.line.texts
        samples = [texts[at + 1] for at in range(2, len(texts) - 1, 2) if texts[at] == "sample"]
        return _one_in(samples[0]) if samples else 1.0

    def dropping(self, wanted: Wanted | None = None) -> dict[int, str]:
        """Words of the line that drop requests' lines, and how: more than is wanted."""
        texts = self.line.texts
        at = 2
        found = {}
        expected = wanted is not None and self.one_in == wanted.one_in
        while at < len(texts) and texts[at] in _PAIRS:
            if texts[at] == "sample" and not expected:
                found.update(dict.fromkeys((at, at + 1), f"{texts[at]} drops requests"))
            at += 2
        if texts[at + 1 : at + 2] and texts[at + 1] not in _SHOWN_LEVELS:
            why = f"level {texts[at + 1]} leaves requests out, whose level is info"
            found[at + 1] = why
        return found

    def serves(self, wanted: Wanted) -> bool:
        """Whether its lines come where they are wanted."""
        if wanted.address.scheme == "file":
            # Which of them the syslog daemon writes to that file, it alone knows.
            return any(address.scheme in ("syslog", "unixgram") for address in self.addresses)
        return any(same(address, wanted.address) for address in self.addresses)


def _one_in(sample: str) -> float:
    """Of how many requests one is logged, by HAProxy's ``RANGES:SIZE``; infinite if it is none.

    Examples
    --------
    >>> _one_in("1:10"), _one_in("1-2,5:6"), _one_in("nothing")
    (10.0, 2.0, inf)
    """
    found = _SAMPLE.fullmatch(sample)
    if found is None:
        return math.inf
    ranges = [each.split("-") for each in found[1].split(",")]
    logged = sum(int(each[-1]) - int(each[0]) + 1 for each in ranges)
    return int(found[2]) / logged if logged > 0 else math.inf


def targets(config: Config, frontend: Section) -> list[Target]:
    """Log targets in force, in order: ``no log`` forgets those before it."""
    found: list[Target] = []
    for line in frontend.effective("log"):
        certain = frontend.certain(line)
        if line.negated:
            found = [] if certain else found
        elif line.texts == ("log", "global"):
            for shared in config.in_global("log"):
                known = certain and not shared.doubt
                found.append(Target(shared, _leads_to(config, shared), known))
        else:
            found.append(Target(line, _leads_to(config, line), certain))
    return found


def _leads_to(config: Config, line: Line) -> tuple[Address, ...]:
    text = line.texts[1] if len(line.texts) > 1 else ""
    if text.startswith("ring@"):
        return tuple(a for a, _ in ring_servers(config, text.removeprefix("ring@")))
    address = log_address(text)
    if address is None:
        return ()
    # A log-forward section passes on what it receives.
    passed_on = [
        log_address(out.texts[1])
        for forward in config.of_kind("log-forward")
        if any(_is_bound_to(bind, address) for bind in forward.own("bind", "dgram-bind"))
        for out in forward.own("log")
        if len(out.texts) > 1
    ]
    return (address, *(a for a in passed_on if a is not None))


def _is_bound_to(bind: Line, address: Address) -> bool:
    bound = log_address(bind.texts[1]) if len(bind.texts) > 1 else None
    return bound is not None and same(bound, address)


def ring_servers(config: Config, name: str | None = None) -> list[tuple[Address, Line]]:
    """Servers that a ring, or any ring, sends its lines to."""
    return [
        (address, line)
        for ring in config.of_kind("ring")
        if name in (None, ring.name)
        for line in ring.own("server")
        if len(line.texts) > 2 and (address := stream_address(line.texts[2])) is not None
    ]


def format_of(frontend: Section) -> tuple[Line | None, LogFormat | None]:
    """The line that says how the frontend logs, and which of DIAL's formats that is."""
    lines = [
        line
        for line in frontend.effective("log-format", "option")
        if not line.negated and (line.says("log-format") or line.texts[1:2] in _NAMED_LINES)
    ]
    if not lines:
        return None, None
    line = lines[-1]
    texts = line.texts
    if texts[0] == "log-format":
        return line, reading(texts[1]) if len(texts) > 1 else None
    return line, None if "clf" in texts[2:] else _NAMED_FORMATS[texts[1]]


def choose(config: Config, frontends: Iterable[Section]) -> Wanted:
    """What asks for the fewest changes where DIAL's options do not say.

    A way that a frontend has already, if there is one; else README's ring, with the format
    as it is where all of them can be read, and with DIAL's compact one where not.
    """
    frontends = list(frontends)
    found = [wanted for frontend in frontends for wanted in _offers(config, frontend)]
    if found:
        return max(found, key=lambda w: (found.count(w), _ORDER.index(w.address.scheme)))
    formats = {format_of(frontend)[1] for frontend in frontends}
    ours = [address for address, _ in ring_servers(config, "dial")]
    return Wanted([*ours, DEFAULT_ADDRESS][0], "httplog" if formats == {"httplog"} else "dial")


def _offers(config: Config, frontend: Section) -> list[Wanted]:
    line, log_format = format_of(frontend)
    if line is None or log_format is None or not frontend.certain(line):
        return []
    found = [
        Wanted(ours, log_format)
        for target in targets(config, frontend)
        if target.certain and not target.dropping()
        for address in target.addresses
        if (ours := _as_option(address, log_format)) is not None
    ]
    return list(dict.fromkeys(found))


def _as_option(address: Address, log_format: LogFormat) -> Address | None:
    """How DIAL would read what is sent there; ``None`` where somebody else reads already."""
    if not address.is_loopback:
        return None
    if address.path.endswith("/dev/log") or address.port == SYSLOG_PORT:
        return SYSLOG_FILE
    if address.scheme == "tcp" and log_format != "dial":
        return None
    return address
