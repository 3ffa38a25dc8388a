"""The log: one line an event, and never a secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from pydantic import SecretStr

from dial.cli.logging import REDACTED, set_up_logging

TOKEN = 'correct-"horse"-\\-staple'  # JSON escapes the quotes and the backslash


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_no_way_into_the_log_lets_a_secret_through(log_format: str) -> None:
    stream = io.StringIO()
    set_up_logging(log_format, secrets=[SecretStr(TOKEN)], stream=stream)  # type: ignore[arg-type]
    log = structlog.get_logger("dial.test")
    log.info("by key", token="other-secret", headers={"Authorization": "Bearer other-secret"})
    log.info("in the message %s", TOKEN, url=f"http://x/?t={TOKEN}", kept="visible")
    logging.getLogger("uvicorn.error").error("from a library: %s", TOKEN)
    try:
        int(f"in a traceback {TOKEN}")
    except ValueError:
        log.exception("failed")
    text = stream.getvalue()
    assert "staple" not in text
    assert "other-secret" not in text
    assert REDACTED in text
    assert "visible" in text
    assert "Traceback" in text


def test_json_lines_have_time_level_logger_and_event() -> None:
    stream = io.StringIO()
    set_up_logging("json", stream=stream)
    structlog.get_logger("dial.test").warning("tick late", late_s=1.5)
    logging.getLogger("some.library").info("said %s", "this")
    ours, theirs = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (ours["event"], ours["level"], ours["logger"]) == ("tick late", "warning", "dial.test")
    assert ours["late_s"] == 1.5
    assert ours["timestamp"].endswith("Z")
    assert (theirs["event"], theirs["logger"]) == ("said this", "some.library")


def test_one_line_per_request_of_our_own_client_is_left_out() -> None:
    stream = io.StringIO()
    set_up_logging("json", stream=stream)
    logging.getLogger("httpx").info("HTTP Request: GET http://x")
    assert stream.getvalue() == ""
