"""The wire format between agent and controller, version 1 (POST /v1/samples)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dial.types import METRIC_NAMES, AgentSample, Measured, Named, NoData

VERSION = 1

_MOST_TEXT_CHARS = 200
"""The controller refuses longer ones; a path in a reason can be of any length."""


def sample_fields(sample: AgentSample) -> dict[str, object]:
    """Return one sample as the wire has it."""
    return {
        "at_s": sample.at_s,
        "interval_s": sample.interval_s,
        "metrics": {name: _field(getattr(sample, name)) for name in METRIC_NAMES},
        "top_resource": _field(sample.top_resource),
    }


def encode(backend: str, agent: str, samples: Sequence[AgentSample]) -> bytes:
    """Return the body of one post.

    Raises
    ------
    ValueError
        If a metric is not finite: NaN is not JSON, and no measurement.
    """
    body = {
        "version": VERSION,
        "backend": backend,
        "agent": agent,
        "samples": [sample_fields(sample) for sample in samples],
    }
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()


def _field(value: Measured | Named) -> float | str | dict[str, str]:
    if isinstance(value, NoData):
        return {"no_data": _line(value.reason)}
    return _line(value) if isinstance(value, str) else value


def _line(text: str) -> str:
    # A file's name or a defect's message can hold anything; the controller takes one line.
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return text[:_MOST_TEXT_CHARS]
