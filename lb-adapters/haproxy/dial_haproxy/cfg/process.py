"""The ``global`` section: the socket that weights are set through, and what a reload keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dial.adapter import Edit, Finding, Severity
from dial_haproxy.cfg.addresses import same, stream_address
from dial_haproxy.cfg.findings import error, in_doubt, note, ok, warning
from dial_haproxy.cfg.lines import Line
from dial_haproxy.cfg.sections import Config, Section
from dial_haproxy.config import socket_line, statements
from dial_haproxy.options import Address

DEFAULT_SOCKET = Address(scheme="unix", path="/run/haproxy/dial.sock")

STATE_FILE = "/var/lib/haproxy/server-state"
"""In the directory that Debian's package makes for HAProxy."""


def sockets(config: Config) -> list[tuple[Address, Line]]:
    """Runtime sockets, as the option ``socket`` names them."""
    prefix = ""
    for line in config.in_global("unix-bind"):
        prefix = line.after_word("prefix") or prefix
    return [
        (address, line)
        for line in config.in_global("stats")
        if line.says("stats", "socket") and len(line.texts) > 2
        if (address := stream_address(line.texts[2], prefix)) is not None
    ]


def level(line: Line) -> str:
    """What a socket allows; ``operator`` if it does not say."""
    return line.after_word("level", first=3) or "operator"


def choose_socket(config: Config) -> Address:
    """The socket that DIAL best uses where its options do not say."""
    found = sockets(config)
    admin = [address for address, line in found if level(line) == "admin"]
    paths = [address for address, _ in found if address.path]
    return next(iter(admin or paths), DEFAULT_SOCKET)


def check_socket(config: Config, wanted: Address) -> Iterator[Finding]:
    """Whether weights can be set at that address."""
    found = [line for address, line in sockets(config) if same(address, wanted)]
    doubts = [line.doubt for line in found if line.doubt]
    unnamed = [
        line.doubt
        for line in config.in_global("stats")
        if line.says("stats", "socket") and line.words[2:3] and line.words[2].variables
    ]
    is_admin = any(level(line) == "admin" and not line.doubt for line in found)
    if not is_admin and (doubts or (unnamed and not found)):
        line = found[0] if found else config.sections[0].header
        yield in_doubt(line, f"stats socket {wanted}", (doubts or unnamed)[0])
        return
    if not found:
        yield _missing(config, wanted)
        return
    line = found[0]
    if level(line) != "admin":
        at = [n for n, word in enumerate(line.texts) if n >= 3 and word == "level"]
        yield error(
            line,
            f"stats socket at level {level(line)}: weights need 'level admin'",
            line.with_words(without=[n + i for n in at for i in (0, 1)], added=("level", "admin")),
        )
    else:
        yield ok(line, f"stats socket {wanted.path or wanted}, level admin")
    if not wanted.is_loopback:
        yield warning(
            line,
            f"stats socket {wanted} can be reached from outside: whoever reaches it is the "
            "administrator of HAProxy",
            fix="a path, or 127.0.0.1",
        )


def _missing(config: Config, wanted: Address) -> Finding:
    host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
    (statement,) = statements(socket_line(wanted.path or f"ipv4@{host}:{wanted.port}"))
    what = f"no 'stats socket {wanted.path or wanted}'"
    section = next((s for s in config.of_kind("global") if not s.header.condition), None)
    if section is None:
        top = config.files[0]
        return Finding(
            Severity.ERROR,
            what,
            at=f"{top.path}:1",
            edits=(Edit(top.path, 0, 0, ("global", f"    {statement}", "")),),
        )
    present = [line for line in section.own("stats") if line.says("stats", "socket")]
    if present and not present[-1].condition:
        edit = present[-1].followed_by(*section.indented(statement))
    else:
        edit = section.starts_with(statement)
    return error(section.header, what, edit)


def check_processes(config: Config) -> Iterator[Finding]:
    """Each process of ``nbproc`` (until 2.5) has weights of its own."""
    for line in config.in_global("nbproc"):
        if line.texts[1:2] not in ((), ("1",)):
            yield error(
                line,
                f"'{line.statement}': each process has its own weights, DIAL would set one's",
                line.removed(),
                fix="threads (nbthread) instead",
            )


def check_state_file(
    config: Config, backends: Sequence[Section], socket: Address
) -> Iterator[Finding]:
    """Recommend that weights outlive a reload."""
    files = config.in_global("server-state-file")
    loading = {section.name: _state_from(section) for section in backends}
    without = [section for section in backends if not loading[section.name]]
    lacks_file = not files and "local" not in loading.values()
    if not without and not lacks_file:
        yield ok(backends[0].header, "a reload keeps the weights (server-state-file)")
        return
    edits = [
        (section.defaults or section).starts_with("load-server-state-from-file global")
        for section in without
    ]
    written = [s for s in config.of_kind("global") if not s.header.condition]
    if lacks_file and written:
        edits.append(written[0].starts_with(f"server-state-file {STATE_FILE}"))
    command = f"socat stdio {socket.path or f'tcp:{socket.host}:{socket.port}'}"
    yield note(
        files[0] if files else backends[0].header,
        "a reload forgets the weights: until DIAL sets them again, a tick later, the slow server "
        "has its full load back",
        *dict.fromkeys(edits),
        fix="a state file keeps them; write it before each reload: "
        f"echo 'show servers state' | {command} > {STATE_FILE}",
    )


def _state_from(section: Section) -> str:
    """Where a backend takes its servers' state from at a start: global, local, or nowhere."""
    lines = section.effective("load-server-state-from-file")
    found = lines[-1].texts[1:2] if lines else ()
    return found[0] if found in (("global",), ("local",)) else ""
