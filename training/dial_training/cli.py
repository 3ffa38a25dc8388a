"""``dial train``: collect, fit and measure; each also by itself.

Joins the ``dial`` command through the entry-point group ``dial.commands``.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from dial_training import evaluate, report
from dial_training.collect import collect
from dial_training.errors import ExperimentError
from dial_training.figures import draw_tree
from dial_training.train import train_to

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
QUICK = "quick.toml"
"""The one experiment of the quick mode."""

QUICK_MINUTES = 8.5
"""For recording: fitting and measuring what it yields takes less than the rest of ten."""

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train a model: collect in the lab (root), fit, measure.",
)
app.command("collect")(collect)
app.command("evaluate")(evaluate.command)


@app.callback(invoke_without_command=True)
def everything(
    context: typer.Context,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="At most ten minutes, for a first model.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where data, model and pictures go.")] = Path(
        "out/train"
    ),
) -> None:
    """Without a subcommand: collect, fit, and measure on what was not fitted."""
    # Unwinds like Ctrl-C does, so that machines and neighbours are removed.
    signal.signal(signal.SIGTERM, _on_term)
    if context.invoked_subcommand is not None:
        return
    collect(experiments(quick=quick), out=out, minutes=QUICK_MINUTES if quick else float("inf"))
    fit(out / "dataset.parquet", model_file=out / "model.json", tree_png=out / "tree.png")


@app.command()
def fit(
    data_file: Annotated[Path, typer.Argument(metavar="DATA", help="Data set (Parquet).")],
    *,
    model_file: Annotated[Path, typer.Option("--model", help="Model file to write.")],
    tree_png: Annotated[Path | None, typer.Option("--tree", help="Draw the tree here.")] = None,
) -> None:
    """Fit a model to a data set, measure it, and write it with its card."""
    console = Console()
    with Console(stderr=True).status(f"fitting and measuring {data_file}"):
        model = train_to(data_file, model_file)
    report.show_tree(console, model)
    for title, text in model.card.items():
        console.print(f"[bold]{title}[/]  {text}", highlight=False)
    if tree_png is not None:
        draw_tree(model.decision_tree, tree_png)
    console.print(f"\nmodel      {model_file}  {model.checksum()}", highlight=False)
    console.print(f'to use it  model = "{model_file}" in dial.toml', highlight=False)


def _on_term(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def experiments(*, quick: bool) -> list[Path]:
    """The files that a mode records.

    Raises
    ------
    ExperimentError
        If they are not there: they are part of the checkout, not of the installed package.
    """
    found = [EXPERIMENTS / QUICK] if quick else sorted(EXPERIMENTS.glob("*.toml"))
    found = [path for path in found if path.exists() and (quick or path.name != QUICK)]
    if not found:
        raise ExperimentError(
            f"{EXPERIMENTS}: no {QUICK if quick else 'experiment'}; dial train needs the checkout, "
            "or give files to dial train collect"
        )
    return found
