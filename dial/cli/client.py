"""Asking a running controller, for the commands that show something."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import TypeAdapter, ValidationError

from dial.errors import DialError, SettingError
from dial.service.views import State
from dial.tls import client_context
from dial.types import Measured, NoData

TIMEOUT_S = 5.0
"""An answer takes milliseconds; a person waits this long before trying something else."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How a controller is reached.

    Attributes
    ----------
    url
        Of its API.
    token_file
        With a token that may read, where it asks for one.
    ca_file
        Certificates to trust for https; the computer's own when not given.
    cert_file, key_file
        Own certificate and its key, where it asks for one.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


def fetch_state(reach: Reach) -> tuple[State, bytes]:
    """Ask for ``/v1/state``; returns it checked, and as it was sent.

    Fields that this version does not know are left alone: a controller may be newer.

    Raises
    ------
    DialError
        If nobody answers there, or something that is not a controller does, or it asks for
        a token or a certificate that was not given.
    """
    where = f"{reach.url.rstrip('/')}/v1/state"
    token = reach.token_file
    headers = {} if token is None else {"Authorization": f"Bearer {_token(token)}"}
    context: ssl.SSLContext | bool = True
    if where.startswith("https:"):
        context = client_context(reach.ca_file, reach.cert_file, reach.key_file)
    try:
        # Not through a proxy from the environment: the default is this very machine.
        with httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=context) as client:
            answer = client.get(where, headers=headers)
        answer.raise_for_status()
        return TypeAdapter(State).validate_json(answer.content), answer.content
    except httpx.HTTPStatusError as error:
        if error.response.status_code in (401, 403):
            raise DialError(
                f"{where}: the controller wants a token that may read; give --token-file"
            ) from error
        raise DialError(
            f"{where}: answered {error.response.status_code}; is it a DIAL controller?"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise DialError(f"{where}: not trusted ({error}); give --ca-file") from error
        raise DialError(
            f"{where}: no answer ({error}); is the controller running, and --url right?"
        ) from error
    except ValidationError as error:
        raise DialError(
            f"{where}: answered something else than a controller of this version does; "
            "compare `dial --version` with the controller's"
        ) from error


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise SettingError(f"--token-file {path}: {why}") from error
    if not token or not token.isprintable():
        raise SettingError(f"--token-file {path}: a token is one line of printable ASCII")
    return token


def show(value: Measured, digits: int = 2) -> str:
    """Show a measurement in a table's cell; a dash when there is none."""
    return "-" if isinstance(value, NoData) else f"{value:.{digits}f}"


def explain(value: Measured, unit: str = "", digits: int = 2) -> str:
    """Show a measurement in a sentence, or why there is none."""
    if isinstance(value, NoData):
        return f"no data ({value.reason})"
    return f"{value:.{digits}f}{unit and ' ' + unit}"
