"""The page of docs/reference about the command line; part of scripts/reference.py."""

from __future__ import annotations

from collections.abc import Iterator

from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command

from dial.agent.options import parser as agent_parser
from dial.cli.app import BUILT_IN, EXIT_CODES, build


def commands_page() -> str:
    """Every subcommand with its arguments and options, and what exit codes mean."""
    lines = [
        "# Commands\n",
        "`dial COMMAND --help` says the same. `dial --install-completion` teaches the shell to",
        "complete commands, options and, behind `dial explain`, names of backends. `dial train`",
        "and the lab's `dial-lab` come with distributions of their own.\n",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {means} |" for code, means in EXIT_CODES.items()),
    ]
    for name, summary in BUILT_IN.items():
        rows = list(_agents() if name == "agent" else _options(name))
        lines += [f"\n## dial {name}\n", summary, "", "| option | meaning |", "|---|---|"]
        for option, text in rows:
            if not text:
                raise LookupError(f"option {option} of dial {name}")
            lines.append(f"| `{_cell(option)}` | {_cell(text)} |")
    return "\n".join(lines) + "\n"


def _options(name: str) -> Iterator[tuple[str, str]]:
    group = get_command(build(name, []))
    if not isinstance(group, TyperGroup):
        raise TypeError(group)
    for parameter in group.commands[name].params:
        shown = (parameter.metavar or parameter.name or "").upper()
        if isinstance(parameter, TyperArgument):
            yield shown, parameter.help or ""
        elif isinstance(parameter, TyperOption):
            value = "" if parameter.is_flag else f" {shown}"
            variable = f" From the environment: `{parameter.envvar}`." if parameter.envvar else ""
            yield f"{', '.join(parameter.opts)}{value}", (parameter.help or "") + variable


def _agents() -> Iterator[tuple[str, str]]:
    for action in agent_parser()._actions:
        if action.dest == "help":
            continue
        choices = "|".join(action.choices or ())
        value = "" if action.nargs == 0 else action.metavar or choices or action.dest.upper()
        yield f"{', '.join(action.option_strings)} {value}".strip(), action.help or ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
