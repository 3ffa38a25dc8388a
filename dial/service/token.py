"""Who may do what: a token for each role, where it comes from, and when none is refused.

======== ==========================================================================
read     everything that is shown, where ``api.read_token`` is configured; else anybody
agent    post samples, and follow the weights
operator freeze, set weights by hand, and read
======== ==========================================================================

An agent's token lies on every VM of the tenant, so it can do nothing else.  Nothing is generated
when no token is given: one that nobody has been told is of no use, and printing one would put a
secret into a log.  Without an agents' token samples are refused, and the service stays on loopback.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import SecretStr

from dial.errors import IntakeError, SettingError
from dial.settings import ApiSettings, FleetSettings

MAX_TOKEN_CHARS = 4096
"""Half of what common HTTP servers allow for all headers together (8 KiB)."""


class Role(StrEnum):
    """Whose a token is."""

    READ = "read"
    AGENT = "agent"
    OPERATOR = "operator"


_SETTING = {Role.READ: "read_token", Role.AGENT: "token", Role.OPERATOR: "operator_token"}


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token of each role that has one."""

    agent: SecretStr | None = None
    read: SecretStr | None = None
    operator: SecretStr | None = None

    @classmethod
    def load(cls, api: ApiSettings) -> Tokens:
        """Find the tokens in the settings and the files that these name.

        Raises
        ------
        SettingError
            If a token is given twice, if a file cannot be read, is readable by others than its
            owner or is no regular file, if a token cannot be sent in a header, if two roles have
            the same, or if agents have none although the service can be reached from outside.
        """
        tokens = cls(
            agent=load_token(api, "api", _SETTING[Role.AGENT]),
            read=load_token(api, "api", _SETTING[Role.READ]),
            operator=load_token(api, "api", _SETTING[Role.OPERATOR]),
        )
        if len({t.get_secret_value() for t in tokens.secrets}) < len(tokens.secrets):
            raise SettingError(
                "api.token, api.read_token, api.operator_token: two roles have the same token; "
                "each needs its own"
            )
        require_token_off_loopback(api, tokens.agent)
        return tokens

    @property
    def secrets(self) -> tuple[SecretStr, ...]:
        """All of them."""
        return tuple(t for t in (self.agent, self.read, self.operator) if t is not None)

    def require(self, authorization: str | None, *allowed: Role) -> Role:
        """The role whose token an ``Authorization`` header holds; takes the same time for each.

        Raises
        ------
        IntakeError
            ``no_token`` if no role that is allowed has one, ``unauthorized`` if none or an unknown
            one was sent, ``forbidden`` if it is of a role that is not allowed.
        """
        if all(self._of(role) is None for role in allowed):
            setting = f"api.{_SETTING[allowed[0]]}_file"
            raise IntakeError(
                "no_token",
                f"no {allowed[0]} token is configured, so this is refused to all; set {setting}",
                "Authorization",
            )
        scheme, _, given = (authorization or "").partition(" ")
        # Bytes, because compare_digest refuses text that is not ASCII; headers are latin-1.
        sent = given.strip().encode("latin-1", "replace")
        found: Role | None = None
        for role in Role:
            token = self._of(role)
            # Compared with every role's, the first match included: time tells nobody which.
            if token is not None and hmac.compare_digest(sent, token.get_secret_value().encode()):
                found = role
        if found is None or scheme.lower() != "bearer":
            what = "wrong token" if authorization else "no token was sent"
            raise IntakeError(
                "unauthorized", f"{what}: send 'Authorization: Bearer TOKEN'", "Authorization"
            )
        if found not in allowed:
            raise IntakeError(
                "forbidden",
                f"this is the token of the role {found}; allowed: {', '.join(allowed)}",
                "Authorization",
            )
        return found

    def _of(self, role: Role) -> SecretStr | None:
        return {Role.READ: self.read, Role.AGENT: self.agent, Role.OPERATOR: self.operator}[role]


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


def load_token(
    table: ApiSettings | FleetSettings, name: str, setting: str = "token"
) -> SecretStr | None:
    """The token of a table of settings, given there or in a file that it names.

    Raises
    ------
    SettingError
        If it is given twice, its file cannot be read or is others' to read, or it cannot be sent.
    """
    token: SecretStr | None = getattr(table, setting)
    path: Path | None = getattr(table, f"{setting}_file")
    where = f"{name}.{setting}"
    if token is not None and path is not None:
        raise SettingError(f"{where} and {where}_file are both given: keep one of them")
    if path is not None:
        where = f"{where}_file = {str(path)!r}"
        token = _read(path, where)
    if token is not None:
        text = token.get_secret_value()
        if not (text.isascii() and text.isprintable() and " " not in text):
            raise SettingError(f"{where}: a token is printable ASCII without spaces")
        if not 0 < len(text) <= MAX_TOKEN_CHARS:
            raise SettingError(f"{where}: a token has 1 to {MAX_TOKEN_CHARS} characters")
    return token


def _read(path: Path, where: str) -> SecretStr:
    try:
        # Mode and content are of one open file, so it cannot be swapped in between;
        # non-blocking, because a named pipe would hang the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise SettingError(f"{where}: not a regular file")
            require_owner_only(mode, path, where)
            content = file.read(MAX_TOKEN_CHARS + 2)
    except OSError as error:
        raise SettingError(f"{where}: {error.strerror}") from error
    # latin-1 takes any byte; what is not ASCII is refused by the caller, in words.
    return SecretStr(content.decode("latin-1").strip())


def require_owner_only(mode: int, path: Path, where: str) -> None:
    """Refuse a secret's file that others than its owner can read or change.

    Raises
    ------
    SettingError
        If its mode lets them.
    """
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SettingError(
            f"{where}: mode {stat.S_IMODE(mode):04o} lets others read or change it; "
            f"only its owner may: chmod 600 {path}"
        )
