"""One post of an agent: from bytes on the wire to checked :class:`AgentSample` values.

The wire format, version 1::

    {"version": 1, "backend": "s1", "agent": "HOST:PID",
     "samples": [{"at_s": 1700000000.0, "interval_s": 1.0,
                  "metrics": {"cpu_usr_cores": 0.21,
                              "cpu_steal_cores": {"no_data": "not filled in by this kernel"}},
                  "top_resource": "Lock:transactionid"}]}

A number from a VM ends up in a weight, so nothing doubtful passes: a post is taken whole
or refused whole, with one :class:`IntakeError` that names backend, field, value and what
is allowed.  Agents are upgraded one by one, so the two directions differ: a metric that
was *not sent* is ``NoData("not sent")``; a metric with an *unknown name* is ignored,
whatever its value, and counted.

The shape is pydantic's to check.  Values are checked here, one by one, because each kind
of bad value has a counter label of its own, and because a validator that stops at a
number's bounds cannot say whose number it was.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import from_json

from dial.errors import IntakeError
from dial.types import METRIC_NAMES, AgentSample, Measured, Named, NoData

VERSION = 1

MAX_SAMPLES = 120
"""Samples in one post: twice what an agent at 1 Hz can hold that is still fresh (60 s)."""

MAX_BODY_BYTES = 1024 * 1024
"""Bytes in one post.

120 samples of 24 metrics, each absent with the longest reason allowed, are
120 * 24 * (40 + 200 + 20) = 748,800 bytes; ordinary samples take a tenth of that.
"""

MAX_NAME_CHARS = 256
MAX_REASON_CHARS = 200
MAX_METRICS = 256
"""Metrics in one sample, unknown ones included: ten times those of version 1."""

MAX_INTERVAL_S = 3600.0

MAX_VALUE = 1e15
"""No machine has more of anything a second; it keeps sums and squares finite."""

FRACTION_TOLERANCE = 0.05
"""How far above 1 a fraction may be; it is then taken as 1.

A fraction is a counter's increase over the agent's own clock.  Kernel counters advance
in ticks of up to 10 ms (HZ = 100), which may fall on the wrong side at both ends of a 1 s
interval (0.02), and a contended agent may lose the CPU for some ten milliseconds between
reading the clock and reading the counter.  Refusing those would lose samples just when a
neighbour is there.
"""

REASONS: tuple[str, ...] = (
    "malformed",
    "version",
    "too_large",
    "too_many",
    "too_long",
    "not_finite",
    "negative",
    "out_of_range",
    "interval",
    "stale",
    "future",
    "unknown_backend",
    "not_ready",
    "unauthorized",
    "no_token",
    "forbidden",
)
"""Every label under which a post can be refused (the last three by the service)."""

_KNOWN = frozenset(METRIC_NAMES)

_MOST = {name: 1.0 if name.endswith("_fraction") else MAX_VALUE for name in METRIC_NAMES}
"""What is taken as it is, by metric; a fraction may be a little more, and is then taken as 1."""

_NOT_SENT = NoData("not sent")

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


class WireNoData(BaseModel):
    """A metric that could not be measured."""

    model_config = ConfigDict(strict=True)

    no_data: str = Field(min_length=1, max_length=MAX_REASON_CHARS)


_TEXT_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_REASON_CHARS}

_NO_DATA_SCHEMA = {
    "type": "object",
    "properties": {"no_data": _TEXT_SCHEMA},
    "required": ["no_data"],
}

_MetricValue = Annotated[
    object, WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, _NO_DATA_SCHEMA]})
]

_TextValue = Annotated[object, WithJsonSchema({"anyOf": [_TEXT_SCHEMA, _NO_DATA_SCHEMA]})]


class WireSample(BaseModel):
    """One interval, as an agent sends it."""

    model_config = ConfigDict(strict=True)

    at_s: float = Field(description="End of the interval, seconds since the epoch.")
    interval_s: float = Field(
        description=f"Its length, more than 0, at most {MAX_INTERVAL_S:g}.",
        # Said here, checked below, where the refusal can name the backend.
        json_schema_extra={"exclusiveMinimum": 0, "maximum": MAX_INTERVAL_S},
    )
    metrics: dict[str, _MetricValue] = Field(
        max_length=MAX_METRICS,
        description="Value, or {no_data: why}, by metric name; unknown names are ignored.",
    )
    top_resource: _TextValue = Field(
        default=None, description="What its activities waited for most, or {no_data: why}."
    )


class WireBatch(BaseModel):
    """What an agent posts."""

    model_config = ConfigDict(strict=True)

    version: Literal[1]
    backend: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    agent: str = Field(
        min_length=1, max_length=MAX_NAME_CHARS, description="Who sends, as HOST:PID."
    )
    samples: list[WireSample] = Field(min_length=1, max_length=MAX_SAMPLES)


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """A post whose every value is finite and in range; its age is not yet checked."""

    backend: str
    agent: str
    samples: tuple[AgentSample, ...]
    unknown_metrics: int
    """Metrics that were ignored because this version does not know their names."""


def decode_batch(body: bytes) -> SampleBatch:
    """Decode and check one post.

    Raises
    ------
    IntakeError
        For whatever is wrong with it; never anything else.
    """
    if len(body) > MAX_BODY_BYTES:
        raise IntakeError(
            "too_large", f"body of {len(body)} bytes: at most {MAX_BODY_BYTES} are allowed", "body"
        )
    try:
        # Not json.loads: a body of 200 kB of "[" makes it raise RecursionError, and it takes
        # lone surrogates, which no log or answer can be encoded with later.
        raw = from_json(body)
    except ValueError as error:
        raise IntakeError("malformed", f"body is not JSON: {error}", "body") from None
    version = raw.get("version") if isinstance(raw, dict) else None
    # Before the shape: a later version may have another one, and its agent should hear that.
    if version is not None and (type(version) is not int or version != VERSION):
        raise IntakeError(
            "version", f"version = {_short.repr(version)}: this controller speaks 1", "version"
        )
    try:
        wire = WireBatch.model_validate(raw)
    except ValidationError as error:
        raise _shape_error(raw, error) from None
    for name, text in (("backend", wire.backend), ("agent", wire.agent)):
        _printable(wire.backend, name, text)
    samples = tuple(_sample(wire.backend, i, s) for i, s in enumerate(wire.samples))
    unknown = sum(len(s.metrics.keys() - _KNOWN) for s in wire.samples)
    return SampleBatch(wire.backend, wire.agent, samples, unknown)


def refused(reason: str, backend: str, where: str, value: object, allowed: str) -> IntakeError:
    """Build an error of the one form: backend, field, value, what is allowed."""
    return IntakeError(
        reason,
        f"backend {_short.repr(backend)}: {where} = {_short.repr(value)}: {allowed}",
        where,
    )


def _shape_error(raw: object, error: ValidationError) -> IntakeError:
    problem = error.errors(include_url=False, include_context=False)[0]
    where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in problem["loc"])
    reason = {"string_too_long": "too_long", "too_long": "too_many"}.get(
        problem["type"], "malformed"
    )
    backend = raw.get("backend", "not given") if isinstance(raw, dict) else "not given"
    # The path may hold a metric's name from outside, of any length.
    where = where.lstrip(".")[:MAX_NAME_CHARS] or "body"
    if problem["type"] == "missing":  # its input is the whole that it is missing from
        return IntakeError(reason, f"backend {_short.repr(backend)}: {where}: must be given", where)
    return refused(reason, backend, where, problem["input"], problem["msg"])


def _sample(backend: str, index: int, wire: WireSample) -> AgentSample:
    where = f"samples[{index}]"
    if not math.isfinite(wire.at_s):
        raise refused("not_finite", backend, f"{where}.at_s", wire.at_s, "must be a finite number")
    if not 0.0 < wire.interval_s <= MAX_INTERVAL_S:  # false for NaN as well
        reason = "interval" if math.isfinite(wire.interval_s) else "not_finite"
        allowed = f"must be more than 0 and at most {MAX_INTERVAL_S:g}"
        raise refused(reason, backend, f"{where}.interval_s", wire.interval_s, allowed)
    values = {name: _metric(backend, where, name, wire.metrics) for name in METRIC_NAMES}
    top_resource = _named(backend, f"{where}.top_resource", wire.top_resource)
    return AgentSample(
        at_s=wire.at_s, interval_s=wire.interval_s, top_resource=top_resource, **values
    )


def _named(backend: str, where: str, sent: object) -> Named:
    if sent is None:
        return _NOT_SENT
    if isinstance(sent, dict):
        return _no_data(backend, where, sent)
    if not isinstance(sent, str) or not sent:
        raise refused("malformed", backend, where, sent, 'must be a text or {"no_data": "why"}')
    if len(sent) > MAX_REASON_CHARS:
        allowed = f"must be at most {MAX_REASON_CHARS} characters"
        raise refused("too_long", backend, where, sent, allowed)
    _printable(backend, where, sent)
    return sent


def _metric(backend: str, where: str, name: str, sent: Mapping[str, object]) -> Measured:
    if name not in sent:
        return _NOT_SENT
    value = sent[name]
    # Of thousands of agents there are fifty thousand of these a second, and next to none is wrong.
    if (type(value) is float or type(value) is int) and 0.0 <= value <= _MOST[name]:
        return float(value)
    return _checked(backend, f"{where}.metrics.{name}", name, value)


def _checked(backend: str, where: str, name: str, value: object) -> Measured:
    if isinstance(value, dict):
        return _no_data(backend, where, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused("malformed", backend, where, value, 'must be a number or {"no_data": "why"}')
    fraction = name.endswith("_fraction")
    bound = "must be a finite number from 0 to " + ("1" if fraction else f"{MAX_VALUE:g}")
    if isinstance(value, float) and not math.isfinite(value):
        raise refused("not_finite", backend, where, value, bound)
    if value < 0:
        raise refused("negative", backend, where, value, bound)
    if value > (1.0 + FRACTION_TOLERANCE if fraction else MAX_VALUE):
        raise refused("out_of_range", backend, where, value, bound)
    return min(float(value), _MOST[name])


def _no_data(backend: str, where: str, value: Mapping[str, object]) -> NoData:
    reason = value.get("no_data")
    if not (type(reason) is str and 0 < len(reason) <= MAX_REASON_CHARS and reason.isprintable()):
        raise _bad_reason(backend, f"{where}.no_data", value)
    return _absent(reason)


@lru_cache(maxsize=1024)
def _absent(reason: str) -> NoData:
    """The one object for a reason: agents have few of them, and say them often."""
    return NoData(reason)


def _bad_reason(backend: str, where: str, value: Mapping[str, object]) -> IntakeError:
    try:
        WireNoData.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        label = "too_long" if problem["type"] == "string_too_long" else "malformed"
        return refused(label, backend, where, value, problem["msg"])
    return _not_printable(backend, where, value["no_data"])


def _printable(backend: str, where: str, text: str) -> None:
    # These strings are shown in terminals, where an escape sequence is a command.
    if not text.isprintable():
        raise _not_printable(backend, where, text)


def _not_printable(backend: str, where: str, text: object) -> IntakeError:
    return refused("malformed", backend, where, text, "must be printable characters only")
