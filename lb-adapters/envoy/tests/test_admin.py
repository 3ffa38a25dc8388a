"""What the admin interface says, and what it must not make us believe."""

from __future__ import annotations

import json

import pytest

from dial.errors import BalancerRefused, UnknownService
from dial.types import WeightKind
from dial_envoy.admin import AdminClient, Host, View, parse_config, parse_hosts
from dial_envoy.endpoints import Endpoint, pool_of_options
from dial_envoy.options import Address
from dial_envoy.policy import LbPolicy, panic_threshold, policy_of
from dial_envoy.state import combine, deviating, drainable
from dial_envoy.testing import FakeEnvoy

HOST = {
    "address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}},
    "stats": [
        {"value": "12", "name": "rq_total"},
        {"name": "rq_error"},
        {"type": "GAUGE", "value": "3", "name": "rq_active"},
    ],
    "health_status": {"eds_health_status": "HEALTHY"},
    "weight": 26,
}


def answer(**changes: object) -> bytes:
    host = {**HOST, **changes}
    return json.dumps({"cluster_statuses": [{"name": "app", "host_statuses": [host]}]}).encode()


def test_counters_without_a_value_are_0():
    (host,) = parse_hosts(answer(), "app").values()
    assert (host.weight, host.usable, host.in_flight) == (26, True, 3)
    assert (host.requests_total, host.errors_total) == (12, 0)


@pytest.mark.parametrize(
    ("health", "weight", "usable"),
    [
        ({"eds_health_status": "DRAINING"}, 0, True),
        ({"eds_health_status": "UNHEALTHY"}, 26, False),
        ({"eds_health_status": "HEALTHY", "failed_active_health_check": True}, 26, False),
        ({"eds_health_status": "HEALTHY", "failed_outlier_check": True}, 26, False),
        ({}, 26, True),
    ],
)
def test_a_drained_host_has_weight_0_and_a_failing_one_is_not_usable(health, weight, usable):
    (host,) = parse_hosts(answer(health_status=health), "app").values()
    assert (host.weight, host.usable) == (weight, usable)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b"[" * 100_000,
        answer(weight=-1),
        answer(weight="9" * 5000),
        answer(weight=True),
        answer(address={}),
        answer(address={"socket_address": {"address": "x\n;", "port_value": 80}}),
    ],
)
def test_what_envoy_would_not_say_is_refused_on_one_line(body):
    with pytest.raises(BalancerRefused) as refused:
        parse_hosts(body, "app")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_a_cluster_that_is_not_there_is_none():
    assert parse_config(b"", "app") is None
    assert parse_config(b'{"configs": []}', "app") is None


@pytest.mark.parametrize(
    ("config", "policy"),
    [
        ({}, LbPolicy("ROUND_ROBIN")),
        ({"lb_policy": "LEAST_REQUEST"}, LbPolicy("LEAST_REQUEST", 1.0)),
        (
            {
                "lb_policy": "LEAST_REQUEST",
                "least_request_lb_config": {"active_request_bias": {"default_value": 0.5}},
            },
            LbPolicy("LEAST_REQUEST", 0.5),
        ),
        (
            {
                "load_balancing_policy": {
                    "policies": [
                        {
                            "typed_extension_config": {
                                "name": "envoy.load_balancing_policies.least_request",
                                "typed_config": {"active_request_bias": {"default_value": 0}},
                            }
                        }
                    ]
                }
            },
            LbPolicy("LEAST_REQUEST", 0.0),
        ),
        (
            # As Envoy prints a default_value of 0.
            {
                "lb_policy": "LEAST_REQUEST",
                "least_request_lb_config": {"active_request_bias": {"runtime_key": "x"}},
            },
            LbPolicy("LEAST_REQUEST", 0.0),
        ),
    ],
)
def test_both_forms_of_a_policy_are_read(config, policy):
    assert policy_of(config) == policy


@pytest.mark.parametrize(
    ("config", "threshold"),
    [
        ({}, 0.5),
        ({"common_lb_config": {}}, 0.5),
        ({"common_lb_config": {"healthy_panic_threshold": {"value": 80}}}, 0.8),
        ({"common_lb_config": {"healthy_panic_threshold": {}}}, 0.0),  # Envoy prints no 0
    ],
)
def test_the_panic_threshold_is_the_clusters(config, threshold):
    assert panic_threshold(config) == threshold


@pytest.mark.parametrize(
    ("percent", "wanted", "left"),
    [
        (80.0, {"s1": 0}, 3),  # 2 of 3 are 67 %
        (60.0, {"s1": 0}, 2),
        (0.0, {"s1": 0, "s2": 0}, 1),
        (0.0, {"s1": 0, "s2": 0, "s3": 0}, 3),  # nobody would be left
    ],
)
def test_a_drain_never_leads_into_panic(percent, wanted, left):
    three = {f"s{i}": Endpoint(address=f"10.0.0.{i}:80") for i in (1, 2, 3)}
    pool = pool_of_options("app", three)
    hosts = {server.address: Host(100, True, 0, 0, 0) for server in pool.servers}
    config = {"common_lb_config": {"healthy_panic_threshold": {"value": percent}}}
    one = View(Address("http", "127.0.0.1:1"), "1", LbPolicy("ROUND_ROBIN"), hosts, config)
    kept, refused = drainable(pool, [one], pool.configured, wanted)
    after = pool.configured | kept
    assert sum(1 for weight in after.values() if weight) == left
    assert kept.keys() | refused.keys() == wanted.keys()


def test_a_weight_is_a_share_of_requests_biased_by_those_in_flight():
    plain = LbPolicy("ROUND_ROBIN").meaning("app", zero_drains=True)
    biased = LbPolicy("LEAST_REQUEST", 0.5).meaning("app", zero_drains=True)
    assert (plain.kind, plain.in_flight_bias) == (WeightKind.REQUESTS, 0.0)
    assert (biased.kind, biased.in_flight_bias) == (WeightKind.REQUESTS, 0.5)


@pytest.mark.parametrize("name", ["RANDOM", "MAGLEV", "RING_HASH", "vendor.thing"])
def test_policies_that_have_no_use_for_weights_are_refused(name):
    with pytest.raises(BalancerRefused, match="allowed are ROUND_ROBIN and LEAST_REQUEST"):
        LbPolicy(name).meaning("app", zero_drains=True)


POOL = pool_of_options(
    "app", {"s1": Endpoint(address="10.0.0.1:80"), "s2": Endpoint(address="10.0.0.2:80")}
)


def view(started: str, weight: int, policy: str = "ROUND_ROBIN") -> View:
    hosts = parse_hosts(answer(weight=weight), "app")
    return View(Address("http", f"127.0.0.1:{started}"), started, LbPolicy(policy), hosts)


def test_counters_of_several_envoys_add_up_and_a_deviating_weight_shows():
    read = combine("app", POOL, [view("1", 26), view("2", 50)], {"s1": 26, "s2": 100})
    s1, s2 = read.servers
    assert (s1.requests_total, s1.in_flight, s1.weight) == (24, 6, 50)
    assert (s2.usable, s2.weight) == (False, 100)  # no Envoy has it yet
    assert read.epoch == "1 2"
    assert deviating(POOL, [view("1", 26), view("2", 50)], {"s1": 26}) == {
        "s1": "weight in force at http://127.0.0.1:2 is 50, not 26"
    }


def test_envoys_with_two_policies_are_refused():
    with pytest.raises(BalancerRefused, match="one policy is needed"):
        combine("app", POOL, [view("1", 26), view("2", 26, "LEAST_REQUEST")], {})


async def test_an_unknown_service_is_told_what_there_is():
    fake = FakeEnvoy("127.0.0.1:9", service="shop")
    await fake.start()
    admin = AdminClient(Address("http", f"127.0.0.1:{fake.admin_port}"), 2.0)
    try:
        with pytest.raises(UnknownService, match="has no such cluster; there are: shop"):
            await admin.view("app")
    finally:
        await admin.aclose()
        await fake.stop()
