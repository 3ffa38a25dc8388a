"""From a data set on disk to a model file with its card."""

from __future__ import annotations

from pathlib import Path

from dial.model import ModelDocument, save_model
from dial_training.accuracy import accuracy
from dial_training.card import card
from dial_training.dataset import Dataset, sha256
from dial_training.fit import fit, study_all, study_untested
from dial_training.replay import policy


def train(data_path: Path, name: str) -> ModelDocument:
    """Fit a model, measure it, and write what was found into its card.

    Parameters
    ----------
    data_path : of the data set.
    name : of the model.

    Raises
    ------
    DatasetError
        If the file cannot be used, or holds too little to fit.
    """
    data = Dataset.load(data_path)
    studied = study_all(data)
    fitted = fit(studied)
    product = policy(fitted.model(name, {}), data.setting.percentile)
    measured = accuracy(
        product, studied, fitted.table, fitted.cross_validation, untested=study_untested(data)
    )
    return fitted.model(name, card(data, sha256(data_path), fitted, measured))


def train_to(data_path: Path, model_path: Path) -> ModelDocument:
    """The same, saved; the model is named for its file."""
    model = train(data_path, model_path.stem)
    model_path.parent.mkdir(parents=True, exist_ok=True)
    save_model(model, model_path)
    return model
