"""All subcommands put together, and the one place where an error becomes an exit code.

Commands of other distributions join through the entry-point group ``dial.commands``::

    [project.entry-points."dial.commands"]
    train = "dial_training.cli:app"

where the object is a Typer application or a function that Typer can take.

A subcommand's module is imported only when the command line names it: ``dial status``
needs neither numpy nor the packages of others, and a distribution that cannot be imported
breaks nothing but its own command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer

from dial import __version__
from dial.errors import DialError, SettingError

ENTRY_POINT_GROUP = "dial.commands"

EXIT_OK = 0
EXIT_ERROR = 2
EXIT_CODES = {
    EXIT_OK: "all is well, or a command that runs until it is stopped was stopped",
    1: "the command ran and its answer is no (check found an error, replay a difference)",
    EXIT_ERROR: "it could not run: usage, settings, files, or nobody answers",
    130: "interrupted",
}

_EPILOG = f"Exit codes: {'; '.join(f'{code} {means}' for code, means in EXIT_CODES.items())}."

BUILT_IN = {
    "controller": "Run the control loop: read, infer, plan, write weights.",
    "reader": "Beside a balancer of a fleet: publish what it does, apply plans.",
    "watchdog": "Put the configured weights back when the controller has died.",
    "agent": "Sample this VM and post to the controller.",
    "check": "Check the configuration and the load balancer's.",
    "status": "Show a running controller at a glance.",
    "top": "Show a running controller live.",
    "explain": "Say why a backend has the weight it has.",
    "replay": "Run a recording again and compare every plan.",
}
"""Subcommands and what `dial --help` says of them; each is ``dial.cli.NAME.command``.

``agent`` is not: :func:`dial.cli.main` hands it over before this module is imported.
"""


def run(argv: Sequence[str]) -> int:
    """Run one command line; returns the exit code, with errors on standard error."""
    # The application's own options take no values, so the first word is the subcommand.
    words = _words_to_complete() or argv
    named = next((word for word in words if not word.startswith("-")), None)
    app = build(named, entry_points(group=ENTRY_POINT_GROUP))
    try:
        app(list(argv), prog_name="dial")
    except DialError as error:
        # One line: whoever reads it at night needs what, where and what to do, not where
        # in our code it was noticed.
        sys.stderr.write(f"dial: {' '.join(str(error).split())}\n")
        return EXIT_ERROR
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return EXIT_OK


def _words_to_complete() -> Sequence[str]:
    """The command line so far, where a shell asks what could follow; it is no argument then."""
    if "_DIAL_COMPLETE" not in os.environ:
        return ()
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return line.split()[1:]


def build(named: str | None, others: Iterable[EntryPoint]) -> typer.Typer:
    """Put the application together for a command line that names ``named``, if any."""
    app = typer.Typer(
        help="Infers hidden neighbours and moves load away from them.",
        epilog=_EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # a traceback with local variables shows tokens
    )
    app.callback()(_options)
    for name, summary in BUILT_IN.items():
        if name == named and name != "agent":
            app.command(name)(import_module(f"dial.cli.{name}").command)
        else:
            app.command(name, help=summary)(_unnamed)
    for entry in others:
        if entry.name in BUILT_IN:
            _report(entry, "its name is one of dial's own commands")
        elif named in (None, entry.name):
            _join(app, entry)
    return app


def _unnamed() -> None:
    # Listed only. `dial --option agent` is the one command line that comes here.
    raise SettingError("agent must be the first word after dial: dial agent ...")


def _join(app: typer.Typer, entry: EntryPoint) -> None:
    try:
        loaded = entry.load()
    except Exception as error:  # noqa: BLE001 - another distribution's import may raise anything
        why = f"{type(error).__name__}: {error}"
        _report(entry, why)
        app.command(entry.name, help=f"Cannot be used: {why}")(_broken(entry, why))
        return
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=entry.name)
    else:
        app.command(entry.name)(loaded)


def _report(entry: EntryPoint, why: str) -> None:
    sys.stderr.write(f"dial: command {entry.name!r} of {entry.value} is left out: {why}\n")


def _broken(entry: EntryPoint, why: str) -> Callable[[], None]:
    def command() -> None:
        raise SettingError(
            f"command {entry.name!r} of {entry.value} cannot be loaded: {why}; "
            "reinstall or remove its distribution"
        )

    return command


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dial {__version__}")
        raise typer.Exit


def _options(
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass
