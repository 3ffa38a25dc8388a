"""The before/after table at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def build(report: Mapping[str, Any]) -> Table:
    """One row per policy: P_x per phase, errors, and what a controller did."""
    x = f"{report['percentile']:g}"
    table = Table(
        box=None,
        header_style="bold",
        # Narrow enough for 80 columns, without a word broken.
        padding=(0, 1, 0, 0),
        title=f"P{x} of response time in ms; rho_bg as estimated/true",
        title_justify="left",
    )
    table.add_column("policy", no_wrap=True)
    for name in ("quiet", "contended", "recovered", "errors", "reacts", "recovers"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("rho_bg", justify="right", no_wrap=True)
    for name, policy in report["policies"].items():
        phases = [policy[phase] for phase in ("quiet", "contended", "recovered")]
        table.add_row(
            name,
            *(_figure(phase.get(f"p{x}_ms"), "") for phase in phases),
            str(sum(phase["errors"] for phase in phases)),
            _figure(policy["reaction_s"], " s"),
            _figure(policy["recovery_s"], " s"),
            _main_verdict(policy["verdicts"]),
            _rho(policy["rho_bg"]),
        )
    return table


def isolation(report: Mapping[str, Any]) -> Table:
    """One row per policy and figure: how well the tenant is isolated (1 is perfectly)."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.title, table.title_justify = "isolation by steps of the neighbour", "left"
    table.add_column("policy", no_wrap=True)
    table.add_column("of", no_wrap=True)
    for name in ("I_avg", "I_max", "I_plr at most"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, policy in report["policies"].items():
        for what in ("throughput", f"p{report['percentile']:g}"):
            of = policy["isolation"][what]
            most = max(of["i_plr"])
            table.add_row(name, what, f"{of['i_avg']:.2f}", _two(of["i_max"]), f"{most:.2f}")
    return table


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _main_verdict(verdicts: Mapping[str, int] | None) -> str:
    """What was held of the victim in most ticks of the contended phase."""
    return max(verdicts, key=lambda cause: verdicts[cause]) if verdicts else "-"


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.1f}{unit}"


def _rho(rho_bg: Mapping[str, float | None]) -> str:
    true, estimated = rho_bg["true"], rho_bg["estimated"]
    if true is None:
        return "-"
    return f"{true:.2f}" if estimated is None else f"{estimated:.2f}/{true:.2f}"
