"""``dial watchdog`` as far as it goes without a load balancer; the rest is in tests/e2e."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Dial = Callable[..., tuple[int, str, str]]


def test_a_watchdog_without_a_lease_to_watch_is_refused(dial: Dial, tmp_path: Path) -> None:
    config = tmp_path / "dial.toml"
    config.write_text('service = "web"\n[adapter]\nname = "haproxy"\n')
    code, out, err = dial("watchdog", "--config", str(config))
    assert (code, out) == (2, "")
    assert err == (
        f"dial: {config}: lease.path: must be given; a watchdog looks at the controller's lease\n"
    )
