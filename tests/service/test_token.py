"""Where the token comes from, and what is refused on the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from dial.errors import SettingError
from dial.service.token import Role, Tokens, is_loopback
from dial.settings import ApiSettings

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


def test_the_token_is_the_files_content_without_its_line_end(token_file: Path) -> None:
    token = Tokens.load(ApiSettings(token_file=token_file)).agent
    assert token == SecretStr(TOKEN)
    assert TOKEN not in repr(token)


def test_a_token_may_stand_in_the_settings_and_none_is_none() -> None:
    assert Tokens.load(ApiSettings(token=SecretStr(TOKEN))).agent == SecretStr(TOKEN)
    assert Tokens.load(ApiSettings()).agent is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_file_that_others_can_read_or_change_is_refused(token_file: Path, mode: int) -> None:
    token_file.chmod(mode)
    with pytest.raises(SettingError, match=rf"api\.token_file.*{mode:04o}.*chmod 600") as caught:
        Tokens.load(ApiSettings(token_file=token_file))
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"\xff\xfe", b"a\x00b", b"x" * 4097])
def test_what_cannot_be_sent_in_a_header_is_refused(token_file: Path, content: bytes) -> None:
    token_file.write_bytes(content)
    with pytest.raises(SettingError, match=r"api\.token_file.*a token (is|has)"):
        Tokens.load(ApiSettings(token_file=token_file))


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path, why in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "not a regular file|Is a directory"),
        (pipe, "not a regular file"),
    ):
        with pytest.raises(SettingError, match=why):
            Tokens.load(ApiSettings(token_file=path))


def test_two_tokens_are_one_too_many(token_file: Path) -> None:
    with pytest.raises(SettingError, match="keep one"):
        Tokens.load(ApiSettings(token=SecretStr(TOKEN), token_file=token_file))


def test_off_loopback_needs_a_token(token_file: Path) -> None:
    with pytest.raises(SettingError, match=r"api\.host = '0\.0\.0\.0'"):
        Tokens.load(ApiSettings(host="0.0.0.0"))
    assert Tokens.load(ApiSettings(host="0.0.0.0", token_file=token_file)).agent is not None


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("localhost.example", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_each_role_has_a_token_of_its_own(tmp_path: Path) -> None:
    operator = tmp_path / "operator"
    operator.touch(mode=0o600)
    operator.write_text("another-token")
    api = ApiSettings(token=SecretStr(TOKEN), operator_token_file=operator)
    tokens = Tokens.load(api)
    assert tokens.operator == SecretStr("another-token")
    assert tokens.read is None
    with pytest.raises(SettingError, match="two roles have the same token"):
        Tokens.load(ApiSettings(token=SecretStr(TOKEN), read_token=SecretStr(TOKEN)))
    with pytest.raises(SettingError, match=r"api\.operator_token and api\.operator_token_file"):
        Tokens.load(ApiSettings(operator_token=SecretStr(TOKEN), operator_token_file=operator))


def test_a_token_is_compared_with_every_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def same(one: bytes, other: bytes) -> bool:
        seen.append(other)
        return one == other

    monkeypatch.setattr("dial.service.token.hmac.compare_digest", same)
    tokens = Tokens(SecretStr("a"), SecretStr("r"), SecretStr("o"))
    for given in ("a", "r", "o"):
        seen.clear()
        tokens.require(f"Bearer {given}", *Role)
        assert sorted(seen) == [b"a", b"o", b"r"]
