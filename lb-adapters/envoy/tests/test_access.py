"""Connections of TLS that come to nothing are counted."""

from __future__ import annotations

from collections import Counter

import pytest

from dial_envoy.access import CALL_WITHIN_S, Handshakes


class Watched:
    """Handshakes under a clock of the test's own."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events: Counter[str] = Counter()
        self.handshakes = Handshakes(self.events, lambda: self.now_s)

    def refused(self) -> int:
        self.handshakes.count()
        return self.events["xds_tls_refused"]


@pytest.fixture
def watched():
    return Watched()


def test_a_handshake_that_no_call_follows_was_refused(watched):
    watched.handshakes.begin()
    assert watched.refused() == 0
    watched.now_s = CALL_WITHIN_S + 0.1
    assert watched.refused() == 1
    assert watched.refused() == 1


def test_a_handshake_that_a_call_follows_was_not(watched):
    watched.handshakes.begin()
    watched.handshakes.called("ipv4:127.0.0.1:1000")
    watched.now_s = CALL_WITHIN_S + 0.1
    assert watched.refused() == 0


def test_further_calls_on_one_connection_speak_for_no_other_handshake(watched):
    watched.handshakes.begin()
    watched.handshakes.begin()
    for _ in range(2):
        watched.handshakes.called("ipv4:127.0.0.1:1000")
    watched.now_s = CALL_WITHIN_S + 0.1
    assert watched.refused() == 1
