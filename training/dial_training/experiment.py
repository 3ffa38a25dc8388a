"""An experiment: which sessions to record, as a TOML file that is checked when it is read.

::

    set = "train"
    seed = 1
    resources = ["cpu", "net"]      # a session for each resource, load and repeat
    loads = [0.25, 0.4]

    [[stages]]                      # of each session; any number of such groups
    count = 4
    seconds = 14.0
    victims = 2                     # machines that have a neighbour
    rho_bg = [0.3, 0.5, 0.7]

:mod:`dial_training.expand` makes sessions of it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dial.settings import describe
from dial_lab.request import MACHINES
from dial_lab.resources import Purpose
from dial_training.errors import ExperimentError

Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
Factor = Annotated[float, Field(gt=0.0, le=3.0)]
Seconds = Annotated[float, Field(gt=0.0, le=3600.0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OwnLoad(_Part):
    """A change of the tenant's own load."""

    rate_factor: Factor = 1.0
    cost_factor: Factor = 1.0


class StageGroup(_Part):
    """Stages of one kind."""

    count: Annotated[int, Field(ge=1, le=200)]
    """In each session."""
    seconds: Seconds
    rest_s: Annotated[float, Field(ge=0.0, le=3600.0)] = 6.0
    calibrate: bool = False
    victims: Annotated[int, Field(ge=0, le=len(MACHINES))] = 0
    """Machines with a neighbour in each stage."""
    machines: tuple[str, ...] = MACHINES
    """Where neighbours may be."""
    purpose: Purpose = "training"
    """Which programs: those for training, or those kept for the unseen test."""
    neighbours: tuple[str, ...] = ()
    """What neighbours take; what the session is about unless given."""
    rho_bg: tuple[Fraction, ...] = ()
    own_load: tuple[OwnLoad, ...] = (OwnLoad(),)


class Experiment(_Part):
    """The content of one file."""

    set: Literal["train", "heldout", "unseen", "quiet"]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    resources: Annotated[tuple[str, ...], Field(min_length=1)]
    loads: Annotated[tuple[Fraction, ...], Field(min_length=1)]
    """rho_fg."""
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    learn_s: Seconds = 24.0
    percentile: Annotated[float, Field(ge=50.0, le=99.9)] = 90.0
    guest: str = "shared"
    """Whose kernel the tenants run under; ``uml`` with the resource ``cpu`` alone."""
    stages: Annotated[tuple[StageGroup, ...], Field(min_length=1)]


def load(path: Path) -> Experiment:
    """Read and check a file.

    Raises
    ------
    ExperimentError
        Naming the file, the setting and what is allowed.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: not TOML: {error}") from error
    try:
        return Experiment.model_validate(document)
    except ValidationError as error:
        raise ExperimentError(f"{path}: {describe(error)}") from error
