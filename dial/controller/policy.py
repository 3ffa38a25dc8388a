"""The strategies and parameters that a plan depends on, fixed when the controller starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, PositiveFloat

from dial.classifier import Tree
from dial.detector import Band, Cusum
from dial.estimator import Tracker
from dial.model import ModelDocument
from dial.queueing import TailCurve
from dial.settings import (
    DetectorSettings,
    EstimatorSettings,
    GuardSettings,
    Settings,
    StrategySettings,
)
from dial.types import Cause


class PolicySource(BaseModel):
    """What a policy is made from: checked data that a recording carries with it.

    Only what a plan depends on: no addresses, no tokens, no paths.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    percentile: float
    detector: DetectorSettings
    estimator: EstimatorSettings
    strategies: StrategySettings
    guards: GuardSettings
    peak_rps: dict[str, float]
    model: ModelDocument
    interval_s: PositiveFloat | None = None
    """As configured; ``None`` in recordings of before it was kept, where each tick is one."""

    @classmethod
    def shipped(cls, model: ModelDocument, percentile: float) -> PolicySource:
        """The product as shipped, with ``model``: every setting at its default."""
        return cls(
            percentile=percentile,
            detector=DetectorSettings(),
            estimator=EstimatorSettings(),
            strategies=StrategySettings(),
            guards=GuardSettings(),
            peak_rps={},
            model=model,
        )

    @classmethod
    def of(cls, settings: Settings, model: ModelDocument) -> PolicySource:
        """The part of the settings, and the model, that plans depend on."""
        return cls(
            percentile=settings.percentile,
            detector=settings.detector,
            estimator=settings.estimator,
            strategies=settings.strategies,
            guards=settings.guards,
            peak_rps={
                name: backend.peak_rps
                for name, backend in settings.backends.items()
                if backend.peak_rps is not None
            },
            model=model,
            interval_s=settings.interval_s,
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """What ``step`` composes.

    Attributes
    ----------
    percentile
        x of T_x, in percent.
    band, cusum
        Detectors: the paper's, and ours.
    learn_intervals
        Quiet intervals before a detector says anything.
    memory_intervals
        Quiet intervals after which a learnt one counts 1/e, whatever is learnt.
    tree
        The classifier.
    shapes
        Of Eq. 1 by resource, from the model; a cause without one has M/M/1's.
    peak_rps
        r_i by backend, as configured.
    tracker
        Estimates rho_bg.
    sampling
        The same with the error of sampling alone: to compare backends, which share Eq. 1's.
    strategies
        Which rule is used where there are two.
    guards
        Limits on what a plan may do.
    model_checksum
        Of the model that tree and curves came from.
    interval_s
        As configured, if it is known.
    """

    percentile: float
    band: Band
    cusum: Cusum
    learn_intervals: int
    memory_intervals: int
    tree: Tree
    shapes: Mapping[Cause, TailCurve]
    peak_rps: Mapping[str, float]
    tracker: Tracker
    sampling: Tracker
    strategies: StrategySettings
    guards: GuardSettings
    model_checksum: str
    interval_s: float | None

    @classmethod
    def of(cls, source: PolicySource) -> Policy:
        """The policy that settings and a model ask for."""
        detector = source.detector
        tracker = Tracker(
            model_error=source.estimator.model_error,
            drift=source.estimator.drift,
        )
        return cls(
            percentile=source.percentile,
            band=Band(
                confidence=detector.confidence,
                successive=detector.successive,
                learn_intervals=detector.learn_intervals,
                memory_intervals=detector.memory_intervals,
            ),
            cusum=Cusum(
                slack=detector.slack,
                threshold=detector.threshold,
                confidence=detector.confidence,
                learn_intervals=detector.learn_intervals,
                memory_intervals=detector.memory_intervals,
            ),
            learn_intervals=detector.learn_intervals,
            memory_intervals=detector.memory_intervals,
            tree=source.model.decision_tree,
            shapes=source.model.tail_shapes,
            peak_rps=source.peak_rps,
            tracker=tracker,
            sampling=replace(tracker, model_error=0.0),
            strategies=source.strategies,
            guards=source.guards,
            model_checksum=source.model.checksum(),
            interval_s=source.interval_s,
        )
