"""The controller's own log: one line an event, on standard error, without secrets.

Everything goes through one formatter, uvicorn's and other libraries' lines included, so
that there is one place where secrets are taken out.  Two nets are stretched there: keys
that are named like a secret lose their value, and the secrets the process knows are cut
out of every line wherever they stand (a traceback, a URL, a message of a library).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Collection, Mapping
from typing import Literal, TextIO

import structlog
from pydantic import SecretStr
from structlog.typing import EventDict, Processor, WrappedLogger

REDACTED = "[redacted]"

SECRET_KEYS = frozenset({"token", "authorization"})


def set_up_logging(
    log_format: Literal["console", "json"],
    *,
    secrets: Collection[SecretStr] = (),
    stream: TextIO | None = None,
) -> None:
    """Send structlog and the standard library's logging to ``stream`` (standard error)."""
    stream = stream or sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact_keys,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        _SecretFreeFormatter(
            secrets,
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer()
                if log_format == "json"
                else structlog.dev.ConsoleRenderer(colors=stream.isatty()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # One line a request that we send ourselves is noise, and holds the whole URL.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def redact_keys(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Structlog processor: replace values of keys named like a secret, at any depth."""
    return {key: _redact(key, value) for key, value in event.items()}


def _redact(key: object, value: object) -> object:
    if str(key).lower() in SECRET_KEYS:
        return REDACTED
    if isinstance(value, Mapping):
        return {k: _redact(k, v) for k, v in value.items()}
    return value


class _SecretFreeFormatter(structlog.stdlib.ProcessorFormatter):
    """Cuts the secrets themselves out of the finished line."""

    def __init__(
        self,
        secrets: Collection[SecretStr],
        *,
        foreign_pre_chain: list[Processor],
        processors: list[Processor],
    ) -> None:
        super().__init__(foreign_pre_chain=foreign_pre_chain, processors=processors)
        # As they are, and as JSON or a Python repr writes them, escapes included.
        plain = [s.get_secret_value() for s in secrets if s.get_secret_value()]
        written = [f(s)[1:-1] for s in plain for f in (json.dumps, repr)]
        twice = [json.dumps(s)[1:-1] for s in written]
        self._secrets = tuple(sorted({*plain, *written, *twice}, key=len, reverse=True))

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        for secret in self._secrets:
            line = line.replace(secret, REDACTED)
        return line
