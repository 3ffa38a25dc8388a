"""``dial check``: what must change, here or at the load balancer, before DIAL works."""

from __future__ import annotations

import asyncio

import typer

from dial.adapter import Adapter, Finding, Severity, load_adapter
from dial.cli.options import Config
from dial.service.token import load_token
from dial.settings import load_settings

_MARKS = {
    Severity.OK: ("ok     ", "green"),
    Severity.WARNING: ("warning", "yellow"),
    Severity.ERROR: ("error  ", "red"),
}


def command(config: Config) -> None:
    """Check the configuration and the load balancer's; changes nothing."""
    settings = load_settings(config)
    token = load_token(settings.api)
    create = load_adapter(settings.adapter.name)
    adapter = create(settings.service, settings.adapter.options)
    findings = list(asyncio.run(_ask(adapter)))
    if token is None:
        findings.append(
            Finding(
                Severity.WARNING,
                "no token is configured: samples of agents will be refused",
                "put a token into a file of mode 0600 and name it as api.token_file",
            )
        )
    for finding in findings:
        mark, colour = _MARKS[finding.severity]
        typer.echo(f"{typer.style(mark, fg=colour)}  {finding.what}")
        if finding.fix:
            typer.echo(f"         fix: {finding.fix}")
    errors = sum(f.severity is Severity.ERROR for f in findings)
    warnings = sum(f.severity is Severity.WARNING for f in findings)
    typer.echo(f"{len(findings)} findings: {errors} errors, {warnings} warnings")
    if errors:
        raise typer.Exit(1)


async def _ask(adapter: Adapter) -> tuple[Finding, ...]:
    try:
        return await adapter.check()
    finally:
        await adapter.aclose()
