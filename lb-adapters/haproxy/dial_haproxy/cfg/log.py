"""What a frontend logs, and whether it comes where DIAL reads it.

A request is seen if its frontend's log format can be read, if one log target leads to
DIAL's address, and if nothing on the way (level, sampling that the option ``sampled`` does not
know of, ``dontlog-normal``) drops it.
``option dontlognull`` is none of that: it hides connections without a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dial.adapter import Finding, Severity
from dial_haproxy.cfg.addresses import same, stream_address
from dial_haproxy.cfg.findings import error, in_doubt, note, warning
from dial_haproxy.cfg.log_targets import Target, Wanted, format_of, ring_servers, targets
from dial_haproxy.cfg.sections import Config, Section
from dial_haproxy.config import CLOCK, HTTPLOG, LOG_FORMAT_LINE, RING, RING_TARGET, statements
from dial_haproxy.options import Address


def check_ring(config: Config, wanted: Wanted, frontends: Iterable[Section]) -> Iterator[Finding]:
    """Look for the ring that sends to DIAL, where that is how the log is to come."""
    address = wanted.address
    if address.scheme != "tcp":
        return
    servers = [line for a, line in ring_servers(config) if same(a, address)]
    for line in servers:
        if line.after_word("log-proto") == "octet-count":
            at = line.texts.index("log-proto")
            yield error(
                line,
                "ring with 'log-proto octet-count': DIAL reads one line after the other",
                line.with_words(without=(at, at + 1), added=("log-proto", "legacy")),
            )
    needed = any(not _served(config, frontend, wanted) for frontend in frontends)
    if servers or not needed:
        return
    lines = statements(RING.format(host=address.host, port=address.port))
    what = f"no ring sends the log to DIAL at {address}"
    present = [ring for ring in config.of_kind("ring") if ring.name == "dial"]
    if present:
        server = present[0].own("server")
        edit = server[0].replaced(lines[-1]) if server else present[0].starts_with(lines[-1])
        yield error(present[0].header, what, edit)
    else:
        end = config.files[-1]
        yield Finding(
            Severity.ERROR,
            what,
            at=f"{end.path}:{len(end.lines)}",
            edits=(end.appended("", lines[0], *(f"    {line}" for line in lines[1:])),),
        )


def _served(config: Config, frontend: Section, wanted: Wanted) -> bool:
    return any(t.certain and t.serves(wanted) for t in targets(config, frontend))


def check_frontend(config: Config, frontend: Section, wanted: Wanted) -> list[Finding]:
    """Whether each of a frontend's requests comes where DIAL reads it, in its format."""
    findings = [
        *_in_one(
            frontend,
            [
                *_clock(frontend, wanted),
                *_target(config, frontend, wanted),
                *_format(config, frontend, wanted),
            ],
        ),
        *_dropped(frontend),
        *check_silenced(frontend),
    ]
    if not any(f.severity in (Severity.ERROR, Severity.WARNING) for f in findings):
        line, _ = format_of(frontend)
        how = "DIAL's log-format" if wanted.format == "dial" else "httplog"
        what = f"{frontend}: {how}, to {wanted.address}"
        findings.append(Finding(Severity.OK, what, at=(line or frontend.header).at))
    return findings


def _in_one(frontend: Section, findings: list[Finding]) -> list[Finding]:
    """What is put in behind one header is one block to copy."""
    here = frontend.header.followed_by()
    blocks = [f for f in findings if f.edits and replace(f.edits[0], insert=()) == here]
    if len(blocks) < 2:
        return findings
    prefix = f"{frontend}: "
    merged = error(
        frontend.header,
        prefix + "; ".join(f.what.removeprefix(prefix) for f in blocks),
        frontend.header.followed_by(*(line for f in blocks for line in f.edits[0].insert)),
        fix=next((f.fix for f in blocks if f.fix), ""),
    )
    return [merged, *(f for f in findings if f not in blocks)]


def _clock(frontend: Section, wanted: Wanted) -> Iterator[Finding]:
    """DIAL's format needs two variables set, for HAProxy's own times are milliseconds."""
    if wanted.format != "dial":
        return
    rules = frontend.effective("http-request", "http-after-response")
    held = {rule.texts for rule in rules if frontend.holds(rule)}
    missing = [statement for statement in CLOCK if tuple(statement.split()) not in held]
    if missing:
        yield error(
            frontend.header,
            f"{frontend}: the microseconds of request and answer are not taken",
            frontend.starts_with(*missing),
        )


def _target(config: Config, frontend: Section, wanted: Wanted) -> Iterator[Finding]:
    serving = [t for t in targets(config, frontend) if t.serves(wanted)]
    whole = [t for t in serving if not t.dropping(wanted)]
    if any(t.certain for t in whole):
        yield from _unsampled(whole, wanted)
        return
    doubts = [t.line.doubt for t in whole if not t.certain]
    unknown = [
        t.line.doubt
        for t in targets(config, frontend)
        if not t.certain and t.line.words[1:2] and t.line.words[1].variables
    ]
    if doubts or unknown:
        yield in_doubt(
            frontend.header,
            f"{frontend}: no log target leads to {wanted.address}",
            (doubts or unknown)[0],
        )
        return
    for target in serving:
        dropping = target.dropping(wanted)
        why = " and ".join(dict.fromkeys(dropping.values()))
        yield error(
            target.line,
            f"'{target.line.statement}': {why}",
            target.line.with_words(without=dropping),
            fix=f"or sampled = {target.one_in:.0f} in DIAL's configuration"
            if 1.0 < target.one_in == target.one_in // 1.0
            else "",
        )
        return
    statement = _target_statement(config, wanted)
    silenced = [line for line in frontend.own("log") if line.negated]
    edit = frontend.starts_with(statement)
    if silenced:
        edit = silenced[-1].followed_by(*frontend.indented(statement))
    yield error(
        silenced[-1] if silenced else frontend.header,
        f"{frontend}: no log target leads to {wanted.address}",
        edit,
    )


def _unsampled(serving: Sequence[Target], wanted: Wanted) -> Iterator[Finding]:
    """Where more is logged than DIAL's option ``sampled`` says, rates would be too high."""
    line = next(t.line for t in serving if t.certain)
    if not any(t.certain and t.one_in == wanted.one_in for t in serving):
        yield error(
            line,
            f"'{line.statement}': every request is logged, and DIAL's option sampled is "
            f"{wanted.one_in}",
            fix=f"sample 1:{wanted.one_in} before the facility, or sampled = 1 in DIAL's "
            "configuration",
        )


def _target_statement(config: Config, wanted: Wanted) -> str:
    address = wanted.address
    if address.scheme == "tcp":
        names = [r.name for r in config.of_kind("ring") if _sends_to(r, address)]
        return RING_TARGET.format(name=names[0] if names else "dial")
    if address.scheme == "file":
        return "log /dev/log local0"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"log {address.path or f'{host}:{address.port}'} local0"


def _sends_to(ring: Section, address: Address) -> bool:
    found = (stream_address(line.texts[2]) for line in ring.own("server") if len(line.texts) > 2)
    return any(a is not None and same(a, address) for a in found)


_ONE_FORMAT = "a frontend has one log format: its other log targets get the same lines"


def _format(config: Config, frontend: Section, wanted: Wanted) -> Iterator[Finding]:
    line, present = format_of(frontend)
    statement = LOG_FORMAT_LINE if wanted.format == "dial" else statements(HTTPLOG)[0]
    if line is None:
        what = f"{frontend}: no log format: HAProxy's lines then carry no times"
        mind = _ONE_FORMAT if targets(config, frontend) else ""
        yield error(frontend.header, what, frontend.starts_with(statement), fix=mind)
        return
    if present == wanted.format and frontend.certain(line):
        return
    shown = line.texts[0] if line.texts[0] == "log-format" else line.statement
    what = f"{frontend}: DIAL cannot read '{shown}' as format {wanted.format}"
    if not frontend.certain(line):
        yield in_doubt(line, f"{frontend}: log format", line.doubt)
        return
    yield error(
        line,
        what,
        line.replaced(statement) if frontend.has(line) else frontend.starts_with(statement),
        fix=_ONE_FORMAT,
    )


_DROPPING_OPTIONS = {
    "dontlog-normal": (error, "requests that went well are not logged"),
    "logasap": (warning, "requests are logged before their answer ends, so its time is not known"),
}


def _dropped(frontend: Section) -> Iterator[Finding]:
    for option, (make, why) in _DROPPING_OPTIONS.items():
        lines = [line for line in frontend.effective("option") if line.texts[1:2] == (option,)]
        if not lines or lines[-1].negated:
            continue
        line = lines[-1]
        statement = f"no option {option}"
        edit = line.replaced(statement) if frontend.has(line) else frontend.starts_with(statement)
        if frontend.certain(line):
            yield make(line, f"{frontend}: 'option {option}': {why}", edit)
        else:
            yield in_doubt(line, f"{frontend}: 'option {option}'", line.doubt)


def check_silenced(section: Section) -> Iterator[Finding]:
    """Rules that keep requests out of the log, in a frontend or in the backend."""
    for line in section.effective("http-request", "http-response", "http-after-response"):
        if line.texts[1:3] == ("set-log-level", "silent"):
            what = f"{section}: '{line.statement}': DIAL does not see these requests"
            if len(line.texts) == 3 and not line.doubt:
                yield error(line, what, line.removed())
            else:
                yield note(line, what)
