"""TLS on the side of those who ask: which certificates are trusted, and which is shown."""

from __future__ import annotations

import ssl
from pathlib import Path

from dial.errors import SettingError


def client_context(
    ca_file: str | Path | None,
    cert_file: str | Path | None,
    key_file: str | Path | None,
    *,
    names: tuple[str, str, str] = ("--ca-file", "--cert-file", "--key-file"),
) -> ssl.SSLContext:
    """What to connect with; the computer's own authorities where no ``ca_file`` is given.

    Raises
    ------
    SettingError
        If a file cannot be used; says which by ``names``, those of the options.
    """
    ca, cert, key = names
    if (cert_file is None) != (key_file is None):
        raise SettingError(f"{cert} and {key}: give both or neither")
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingError(f"{ca} {ca_file}: no certificates to read: {error}") from error
    if cert_file is not None:
        try:
            # Without a password given here OpenSSL would ask for it at the terminal.
            context.load_cert_chain(cert_file, key_file, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise SettingError(
                f"{cert} {cert_file}, {key} {key_file}: cannot be used: {error}"
            ) from error
    return context
