"""Accuracy as tables for people; the same figures as the JSON report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from dial.model import ModelDocument
from dial.types import Cause
from dial_training.measure import Evaluation
from dial_training.tiers import TIERS
from dial_training.tree import in_words


def show(console: Console, found: Evaluation, model: ModelDocument) -> None:
    """Print everything that was measured."""
    console.print(f"model {model.name}, {model.checksum()[:19]}", highlight=False)
    show_tree(console, model)
    for title, table in (
        ("accuracy by what the platform shows", _tiers(found.accuracy["tiers"])),
        (
            "unseen programs: what was the matter (rows), what was found (columns)",
            _confusion(found.accuracy["per_class"]),
        ),
        (
            "held-out intensities: T_x over stages, rho_bg in windows of 30 s",
            _estimates(found.accuracy),
        ),
        ("forms of Eq. 1, resource given: T_x off by / rho_bg off by", _forms(found.forms)),
        ("the tree without one feature (intervals)", _ablation(found)),
    ):
        console.print(title, style="bold")
        console.print(table)
        console.print()


def show_tree(console: Console, model: ModelDocument) -> None:
    """Print the tree, a line for each comparison."""
    console.print("\ntree", style="bold")
    for line in in_words(model.decision_tree):
        console.print(f"  {line}", highlight=False)
    console.print()


def _tiers(tiers: Mapping[str, Mapping[str, Any]]) -> Table:
    table = _table("tier")
    for name in ("CV error", "unseen right", "cases", "too weak", "false alarms", "quiet cases"):
        table.add_column(name, justify="right")
    for tier in TIERS:
        of = tiers[tier.name]
        table.add_row(
            tier.title,
            _percent(of["cv_error"]),
            _percent(of["unseen_accuracy"]),
            str(of["unseen_n"]),
            str(of["unseen_too_weak_n"]),
            _percent(of["false_positive_rate"]),
            str(of["false_positive_runs"]),
        )
    return table


def _confusion(per_class: Mapping[str, Mapping[str, Any]]) -> Table:
    table = _table("")
    answers = [c.value for c in Cause if any(c in row["answers"] for row in per_class.values())]
    for answer in answers:
        table.add_column(answer, justify="right")
    table.add_column("right", justify="right")
    for label, row in per_class.items():
        counts = (str(row["answers"].get(answer, "")) for answer in answers)
        table.add_row(label, *counts, _percent(row["accuracy"]))
    return table


def _estimates(of: Mapping[str, Any]) -> Table:
    table = _table("resource")
    table.add_column("T_x under Eq. 1 off by", justify="right")
    table.add_column("rho_bg off by", justify="right")
    table.add_row("all", _percent(of["model_error"]), _figure(of["rho_bg_mae"]))
    untested = of["without_load_test"]
    table.add_row(
        "all, without a load test",
        _percent(untested["model_error"]),
        _figure(untested["rho_bg_mae"]),
    )
    errors, maes = of["model_error_per_resource"], of["rho_bg_mae_per_resource"]
    for resource in _sorted(errors | maes):
        table.add_row(resource, _percent(errors.get(resource)), _figure(maes.get(resource)))
    return table


def _forms(forms: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> Table:
    table = _table("form")
    resources = list(next(iter(forms.values())))
    for resource in resources:
        table.add_column(resource, justify="right")
    for form, by in forms.items():
        cells = (by[resource] for resource in resources)
        table.add_row(
            form, *(f"{_percent(c['model_error'])} / {_figure(c['rho_bg_error'])}" for c in cells)
        )
    return table


def _ablation(found: Evaluation) -> Table:
    table = _table("without")
    table.add_column("CV error", justify="right")
    table.add_column("unseen error", justify="right")
    for each in found.ablation:
        table.add_row(
            each.without or "(nothing)", _percent(each.cv_error), _percent(each.unseen_error)
        )
    return table


def _table(first: str) -> Table:
    table = Table(box=None, header_style="dim")
    table.add_column(first, no_wrap=True)
    return table


def _sorted(names: Iterable[str]) -> list[str]:
    order = [cause.value for cause in Cause]
    return sorted(names, key=order.index)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
