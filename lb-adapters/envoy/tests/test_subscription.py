"""The rules of one stream, with nothing on the wire."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest
from hypothesis import given
from hypothesis import strategies as st

from dial_envoy.endpoints import Endpoint, pool_of_options
from dial_envoy.snapshot import TYPE_URL, Snapshot
from dial_envoy.subscription import Heard, Subscription

POOL = pool_of_options(
    "app", {"s1": Endpoint(address="10.0.0.1:80"), "s2": Endpoint(address="[::1]:80", weight=7)}
)
ONE, TWO = Snapshot.of(POOL, {}), Snapshot.of(POOL, {"s1": 3})


def sotw(*names: str, version: str = "", nonce: str = "", error: str = "") -> DiscoveryRequest:
    request = DiscoveryRequest(
        resource_names=names, version_info=version, response_nonce=nonce, type_url=TYPE_URL
    )
    if error:
        request.error_detail.message = error
    return request


def delta(*names: str, nonce: str = "", error: str = "", **more: object) -> DeltaDiscoveryRequest:
    request = DeltaDiscoveryRequest(
        resource_names_subscribe=names, response_nonce=nonce, type_url=TYPE_URL, **more
    )
    if error:
        request.error_detail.message = error
    return request


@pytest.mark.parametrize("is_delta", [False, True])
def test_what_was_taken_before_does_not_count_while_another_is_on_its_way(is_delta):
    ask = delta if is_delta else sotw
    again = () if is_delta else ("app",)
    state = Subscription("app", is_delta)
    state.hear(ask("app"))
    state.answer(ONE)
    state.hear(ask(*again, nonce="1"))
    assert state.has_said(ONE.version)
    assert not state.is_due(ONE.version)
    state.answer(TWO)
    # TWO may yet be taken: ONE has to be sent again, and said again.
    assert not state.has_said(ONE.version)
    assert state.is_due(ONE.version)
    state.answer(ONE)
    state.hear(ask(*again, nonce="2"))
    assert not state.has_said(ONE.version)
    state.hear(ask(*again, nonce="3"))
    assert state.has_said(ONE.version)


def test_equal_content_has_an_equal_version_and_other_content_another():
    assert Snapshot.of(POOL, {"s1": 100, "s2": 7}).version == ONE.version
    assert TWO.version != ONE.version


def test_a_weight_of_0_is_sent_as_a_drained_server_of_weight_1():
    members = POOL.assignment({"s1": 0, "s2": 9}).endpoints[0].lb_endpoints
    assert [one.load_balancing_weight.value for one in members] == [1, 9]
    assert [one.health_status for one in members] == [3, 0]  # DRAINING, UNKNOWN


@pytest.mark.parametrize("is_delta", [False, True])
def test_an_answer_is_acked_by_its_nonce(is_delta):
    state = Subscription("app", is_delta)
    ask = delta if is_delta else sotw
    again = () if is_delta else ("app",)
    assert state.hear(ask("app")) is Heard.ASKED
    first = state.answer(ONE)
    second = state.answer(TWO)
    assert first.nonce != second.nonce
    # The ACK of the first comes when the second is on its way: it says nothing of the second.
    assert state.hear(ask(*again, nonce=first.nonce)) is Heard.STALE
    assert state.acked == ""
    assert state.hear(ask(*again, nonce=second.nonce)) is Heard.ACKED
    assert state.acked == TWO.version


@pytest.mark.parametrize("is_delta", [False, True])
def test_a_refusal_keeps_what_was_taken_before(is_delta):
    state = Subscription("app", is_delta)
    ask = delta if is_delta else sotw
    again = () if is_delta else ("app",)
    state.hear(ask("app"))
    state.hear(ask(*again, nonce=state.answer(ONE).nonce))
    refused = ask(*again, nonce=state.answer(TWO).nonce, error="too\x1b[2J much\n" + "x" * 999)
    assert state.hear(refused) is Heard.NACKED
    assert state.acked == ONE.version
    version, said = state.rejected
    assert version == TWO.version
    assert said.startswith("too\\x1b[2J much ")
    assert len(said) < 400
    assert said.isprintable()
    # What is taken next ends it.
    state.hear(ask(*again, nonce=state.answer(ONE).nonce))
    assert state.rejected is None


def test_what_envoy_has_already_is_known_from_its_first_request():
    state = Subscription("app", is_delta=False)
    state.hear(sotw("app", version="v1"))
    assert state.had == "v1"
    state = Subscription("app", is_delta=True)
    state.hear(delta("app", initial_resource_versions={"app": "v1"}))
    assert state.had == "v1"


def test_unknown_names_are_told_to_be_gone():
    state = Subscription("app", is_delta=True)
    assert state.hear(delta("app", "shop")) is Heard.ASKED
    assert state.answer(ONE).removed_resources == ["shop"]
    assert state.hear(delta("cart")) is Heard.UNKNOWN
    assert state.unknown == {"shop", "cart"}
    state.hear(delta(resource_names_unsubscribe=["shop", "app"]))
    assert state.unknown == {"cart"}
    assert not state.wanted


words = st.sampled_from(["app", "shop", ""])
requests = st.lists(
    st.tuples(st.lists(words, max_size=3), st.sampled_from(["", "1", "2", "9"]), st.booleans()),
    max_size=12,
)


@given(requests, st.booleans())
def test_any_sequence_of_requests_leaves_a_state_that_can_answer(sequence, is_delta):
    state = Subscription("app", is_delta)
    ask = delta if is_delta else sotw
    acked = ""
    for names, nonce, refuses in sequence:
        heard = state.hear(ask(*names, nonce=nonce, error="no" if refuses else ""))
        if heard is Heard.ASKED:
            state.answer(TWO)
        # What was taken changes by an ACK only.
        if heard is not Heard.ACKED:
            assert state.acked == acked
        acked = state.acked
        assert "app" not in state.unknown
