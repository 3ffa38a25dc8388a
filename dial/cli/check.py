"""``dial check``: what must change, here or at the load balancer, before DIAL works.

Given the controller's configuration it asks the load balancer that runs.  Given the load
balancer's own configuration it reads that, with nothing running.
"""

from __future__ import annotations

import asyncio
import difflib
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from dial.adapter import (
    Adapter,
    Edit,
    Finding,
    Severity,
    apply_edits,
    check_files,
    load_adapter,
)
from dial.errors import SettingError
from dial.service.server import tls_context
from dial.service.token import Tokens
from dial.settings import load_settings

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="CONFIG",
        help="The controller's configuration (TOML), or files and directories of the load "
        "balancer's own, in its order.",
        show_default=False,
    ),
]
Controllers = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The controller's configuration.", show_default=False),
]
Service = Annotated[
    str,
    typer.Option(
        "--service",
        help="Pool to look at in the load balancer's own files.",
        show_default="all it could be",
    ),
]
Diff = Annotated[
    bool, typer.Option("--diff", help="Print the changes as a patch, and nothing else.")
]
Toml = Annotated[
    bool,
    typer.Option(
        "--toml",
        help="Print the controller's configuration that goes with the load balancer's, and "
        "nothing else.",
    ),
]


def command(
    files: Files = None,
    config: Controllers = None,
    service: Service = "",
    diff: Diff = False,
    toml: Toml = False,
) -> None:
    """Check the controller's configuration, or the load balancer's; changes nothing."""
    findings = _look(files or [], config, service)
    errors = sum(f.severity is Severity.ERROR for f in findings)
    if toml:
        typer.echo(_settings(findings))
    elif diff:
        typer.echo(patch(findings), nl=False)
    else:
        _print(findings)
    if errors:
        raise typer.Exit(1)


def _look(files: Sequence[Path], config: Path | None, service: str) -> Sequence[Finding]:
    if config is None and len(files) == 1 and _is_toml(files[0]):
        config, files = files[0], []
    if config is None:
        if not files:
            raise SettingError("CONFIG is missing: the controller's, or the load balancer's own")
        return check_files(files, service)
    if files or service:
        raise SettingError(
            "give the controller's configuration or the load balancer's, not both: the first "
            "names its service, and where its adapter finds the second"
        )
    return _check_settings(config)


def _settings(findings: Sequence[Finding]) -> str:
    """The configuration of which one of the findings is.

    Raises
    ------
    SettingError
        If none is: the files do not say enough, or are the controller's own.
    """
    found = next((f.settings for f in findings if f.settings), None)
    if found is None:
        why = next((f.what for f in findings if f.severity is Severity.ERROR), "")
        raise SettingError(
            "--toml: no configuration goes with it"
            + (f": {why}" if why else "; give the load balancer's own files, not the controller's")
        )
    return found


def _is_toml(path: Path) -> bool:
    if path.suffix == ".toml":
        return True
    try:
        # Comments alone are TOML as well, and say nothing.
        return bool(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return False


def _check_settings(config: Path) -> list[Finding]:
    settings = load_settings(config)
    tokens = Tokens.load(settings.api)
    tls_context(settings.api)
    create = load_adapter(settings.adapter.name)
    adapter = create(settings.service, settings.adapter.options)
    findings = list(asyncio.run(_ask(adapter)))
    if tokens.agent is None:
        findings.append(
            Finding(
                Severity.WARNING,
                "no token is configured: samples of agents will be refused",
                "put a token into a file of mode 0600 and name it as api.token_file",
            )
        )
    return findings


async def _ask(adapter: Adapter) -> tuple[Finding, ...]:
    try:
        return await adapter.check()
    finally:
        await adapter.aclose()


# ---------------------------------------------------------------- as text

_STYLES = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.WARNING: "yellow",
    Severity.ERROR: "bold red",
}
_LABELS = {Severity.NOTE: ""}
_MARGIN = " " * 9


def _print(findings: Sequence[Finding]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    width = console.width if console.is_terminal else 10_000
    for finding in findings:
        mark = f"{finding.severity:<7}  "
        where = f"{printable(finding.at)}  " if finding.at else ""
        what = _wrap(printable(finding.what), width, len(mark + where))
        style = _STYLES[finding.severity]
        console.print(Text.assemble((mark, style), (where, "bold"), what))
        for edit in finding.edits:
            if not (edit.remove or edit.insert):
                continue  # only ends the file with a line break
            console.print(Text.assemble(*_edit(edit, finding.at)))
        told = finding.fix.strip() or finding.settings
        if told:
            lines = told.splitlines()
            label = "mind: " if finding.edits else _LABELS.get(finding.severity, "fix: ")
            first, *rest = [printable(line) for line in lines]
            console.print(Text(f"{_MARGIN}{label}{_wrap(first, width, len(_MARGIN + label))}"))
            for line in rest:
                console.print(Text(f"{_MARGIN}{' ' * len(label)}{line}"))
    console.print(Text(_summary(findings)))


def _edit(edit: Edit, at: str) -> Iterator[str | tuple[str, str]]:
    """Say what to do, with the lines as they are to be typed."""
    first, last = edit.after + 1, edit.after + edit.remove
    lines = textwrap.dedent("\n".join(map(printable, edit.insert))).split("\n")
    here = at == f"{edit.path}:{first}"
    span = f"line {first}" if first == last else f"lines {first} to {last}"
    named = "" if at.rpartition(":")[0] == edit.path else f" of {printable(edit.path)}"
    if edit.remove and not edit.insert:
        yield f"{_MARGIN}take {'it out' if here else f'out {span}{named}'}"
        return
    if edit.remove:
        yield f"{_MARGIN}replace {'' if here else span + named + ' '}with:"
    elif edit.after == 0:
        yield f"{_MARGIN}add at the top{named}:"
    else:
        yield f"{_MARGIN}add after line {edit.after}{named}:"
    if len(lines) == 1:
        yield (f" {lines[0]}", "bold")
        return
    for line in lines:
        if line:
            yield (f"\n{_MARGIN}    {line}", "bold")


def _wrap(text: str, width: int, used: int) -> str:
    """Fold at blanks, so that what follows stands below its beginning."""
    room = max(24, width - used)
    return ("\n" + " " * used).join(textwrap.wrap(text, room, break_long_words=False) or [""])


def _summary(findings: Sequence[Finding]) -> str:
    counts = {s: sum(f.severity is s for f in findings) for s in Severity}
    named = (
        f"{counts[s]} {s}{'' if counts[s] == 1 else 's'}"
        for s in (Severity.ERROR, Severity.WARNING, Severity.NOTE)
    )
    hint = " (--diff prints the changes as a patch)" if any(_wanted(findings)) else ""
    return f"{len(findings)} findings: {', '.join(named)}{hint}"


def printable(text: str) -> str:
    r"""Show text of a file in a terminal: what would steer it is written as ``\x1b`` is.

    Examples
    --------
    >>> printable("a\tb\x1b[2J")
    'a    b\\x1b[2J'
    """
    text = text.replace("\t", "    ")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


# ---------------------------------------------------------------- as a patch


def patch(findings: Iterable[Finding]) -> bytes:
    """A unified diff with the edits of errors and warnings; notes are left to taste.

    Bytes, for a comment in the file may be in any encoding.
    """
    edits = list(_wanted(findings))
    lines: list[str] = []
    for path in dict.fromkeys(edit.path for edit in edits):
        before = Path(path).read_bytes().decode("utf-8", errors="surrogateescape")
        after = apply_edits(before, [edit for edit in edits if edit.path == path])
        lines += difflib.unified_diff(_with_ends(before), _with_ends(after), path, path)
    return "".join(map(_ended, lines)).encode("utf-8", errors="surrogateescape")


def _with_ends(text: str) -> list[str]:
    """Lines with their line feeds, which alone end a line here."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return lines if lines[-1] else lines[:-1]


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _wanted(findings: Iterable[Finding]) -> Iterator[Edit]:
    for finding in findings:
        if finding.severity in (Severity.ERROR, Severity.WARNING):
            yield from finding.edits
