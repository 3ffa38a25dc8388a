"""``dial reader`` as far as it goes without NATS; the rest is in tests/fleet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Dial = Callable[..., tuple[int, str, str]]


def test_a_reader_without_a_fleet_is_refused(dial: Dial, tmp_path: Path) -> None:
    config = tmp_path / "dial.toml"
    config.write_text('service = "app"\n[adapter]\nname = "haproxy"\n')
    code, out, err = dial("reader", "--config", str(config))
    assert (code, out) == (2, "")
    assert err.startswith(f"dial: {config}: fleet.servers: must be given")


def test_a_fleet_without_its_extra_is_refused_in_words(
    dial: Dial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.fleet.find_spec", lambda _: None)
    config = tmp_path / "dial.toml"
    config.write_text(
        'service = "app"\nadapter = {name = "haproxy"}\n[fleet]\nservers = ["nats://127.0.0.1:9"]\n'
    )
    for command in ("reader", "controller"):
        code, _, err = dial(command, "--config", str(config))
        assert code == 2
        assert "pip install 'dial-lb[fleet]'" in err
