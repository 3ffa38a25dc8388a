"""Where the token for writes comes from, and when doing without one is refused.

Nothing is generated when no token is given: a token that nobody has been told is of no
use to an agent, and printing one would put a secret into a log.  Without a token, writes
are refused and reads stay open, which is safe on loopback only.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path

from pydantic import SecretStr

from dial.errors import SettingError
from dial.settings import ApiSettings

MAX_TOKEN_CHARS = 4096
"""Half of what common HTTP servers allow for all headers together (8 KiB)."""


def load_token(api: ApiSettings) -> SecretStr | None:
    """Find the token in ``api.token`` or ``api.token_file``.

    Raises
    ------
    SettingError
        If both are given, if the file cannot be read, is readable by others than its
        owner or is no regular file, if the token cannot be sent in a header, or if there
        is none although the service can be reached from outside.
    """
    if api.token is not None and api.token_file is not None:
        raise SettingError("api.token and api.token_file are both given: keep one of them")
    token = api.token
    where = "api.token"
    if api.token_file is not None:
        where = f"api.token_file = {str(api.token_file)!r}"
        token = _read(api.token_file, where)
    if token is not None:
        text = token.get_secret_value()
        if not (text.isascii() and text.isprintable() and " " not in text):
            raise SettingError(f"{where}: a token is printable ASCII without spaces")
        if not 0 < len(text) <= MAX_TOKEN_CHARS:
            raise SettingError(f"{where}: a token has 1 to {MAX_TOKEN_CHARS} characters")
    require_token_off_loopback(api, token)
    return token


def require_token_off_loopback(api: ApiSettings, token: SecretStr | None) -> None:
    """Refuse to be reachable from other machines without a token.

    Raises
    ------
    SettingError
        If ``api.host`` is not loopback and ``token`` is ``None``.
    """
    if token is None and not is_loopback(api.host):
        raise SettingError(
            f"api.host = {api.host!r}: without a token only loopback (127.0.0.1, ::1, localhost) "
            "is allowed; set api.token_file"
        )


def is_loopback(host: str) -> bool:
    """Whether an address to bind can be reached from this machine only.

    A name other than ``localhost`` counts as reachable: what it resolves to can change.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(path: Path, where: str) -> SecretStr:
    try:
        # Mode and content are of one open file, so it cannot be swapped in between;
        # non-blocking, because a named pipe would hang the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise SettingError(f"{where}: not a regular file")
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SettingError(
                    f"{where}: mode {stat.S_IMODE(mode):04o} lets others read or change it; "
                    f"only its owner may: chmod 600 {path}"
                )
            content = file.read(MAX_TOKEN_CHARS + 2)
    except OSError as error:
        raise SettingError(f"{where}: {error.strerror}") from error
    # latin-1 takes any byte; what is not ASCII is refused by the caller, in words.
    return SecretStr(content.decode("latin-1").strip())
