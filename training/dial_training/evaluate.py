"""``python -m dial_training.evaluate``: how accurate the shipped model is, on recorded data.

Reads the committed data set and the model, refuses if the one is not what the other was made
from, runs every session through the product in every capability tier, and reports tables, or
with ``--json`` one JSON object in the last line (docs/training.md says what each key means).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dial.errors import DialError
from dial.model import LAB, ModelDocument, load_model
from dial_training import figures, report
from dial_training.card import alpha_of
from dial_training.dataset import Dataset, sha256
from dial_training.errors import TrainingError
from dial_training.measure import evaluate

DATA = Path(__file__).parents[1] / "data" / "dial.parquet"

_EXIT_ERROR = 2


def load(data_path: Path, model_path: Path) -> tuple[Dataset, ModelDocument]:
    """A data set and the model that was made from it.

    Raises
    ------
    TrainingError
        If the model was made from other data, or was not trained at all.
    """
    model = load_model(model_path)
    alpha_of(model.card)
    data = Dataset.load(data_path)
    found, wanted = sha256(data_path), model.card.get("data_sha256")
    if found != wanted:
        raise TrainingError(
            f"{data_path}: sha256 {found}, but {model_path} was made from {wanted}; "
            "restore the file, or train again"
        )
    return data, model


def command(
    data_file: Annotated[Path, typer.Option("--data", help="Data set (Parquet).")] = DATA,
    model_file: Annotated[Path, typer.Option("--model", help="Model made from it.")] = LAB,
    images: Annotated[
        Path | None, typer.Option("--figures", help="Draw PNG files into this directory.")
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object in the last line instead of tables.")
    ] = False,
) -> None:
    """Measure a model on recorded data that it was not made from."""
    started_s = time.monotonic()
    data, model = load(data_file, model_file)
    with Console(stderr=True).status(f"evaluating {model.name} on {len(data.sessions)} sessions"):
        found = evaluate(data, model)
    if images is not None:
        images.mkdir(parents=True, exist_ok=True)
        figures.draw_all(found, model, images)
    if as_json:
        document = {
            "model": model.checksum(),
            "data_sha256": model.card["data_sha256"],
            **found.as_json(),
            "seconds": round(time.monotonic() - started_s, 1),
        }
        typer.echo(json.dumps(document))
    else:
        report.show(Console(), found, model)


def main() -> int:
    """Run as a module; returns the exit code."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        app(prog_name="python -m dial_training.evaluate")
    except DialError as error:
        sys.stderr.write(f"dial_training.evaluate: {error}\n")
        return _EXIT_ERROR
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
