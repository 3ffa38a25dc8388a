"""Several balancers of one service, seen as one."""

from __future__ import annotations

from dial.fleet.merge import merged
from dial.types import BalancerState, ServerState, WeightKind, WeightMeaning

MEANING = WeightMeaning(WeightKind.CONCURRENCY, 1, 256, zero_drains=True)


def state(epoch="1", usable=True, **weights: int) -> BalancerState:
    return BalancerState(
        epoch,
        "leastconn",
        MEANING,
        tuple(ServerState(n, w, 100, usable, 2, 1000, 3) for n, w in weights.items()),
    )


def weights_of(balancer: BalancerState) -> dict[str, int]:
    return {server.name: server.weight for server in balancer.servers}


def test_requests_and_those_in_flight_add_up():
    both = merged([("a", state(s1=100)), ("b", state(s1=100))], {})
    (server,) = both.servers
    assert (server.in_flight, server.requests_total, server.errors_total) == (4, 2000, 6)


def test_each_balancer_counts_its_own_requests_in_flight():
    assert merged([("a", state(s1=100)), ("b", state(s1=100))], {}).meaning.balancers == 2
    assert merged([("a", state(s1=100))], {}).meaning.balancers == 1


def test_a_balancer_without_the_plan_is_seen():
    both = merged([("a", state(s1=24)), ("b", state(s1=100))], {"s1": 24})
    assert weights_of(both) == {"s1": 100}


def test_a_weight_that_an_admin_has_set_at_one_of_them_is_seen():
    both = merged([("a", state(s1=100)), ("b", state(s1=7))], {})
    assert weights_of(both) == {"s1": 7}


def test_a_server_that_is_drained_anywhere_is_left_alone():
    both = merged([("a", state(s1=100)), ("b", state(s1=100, usable=False))], {})
    assert not both.servers[0].usable


def test_the_epoch_changes_with_any_balancer_and_when_one_goes():
    both = merged([("a", state("1", s1=1)), ("b", state("2", s1=1))], {})
    restarted = merged([("a", state("1", s1=1)), ("b", state("3", s1=1))], {})
    alone = merged([("a", state("1", s1=1))], {})
    assert len({both.epoch, restarted.epoch, alone.epoch}) == 3


def test_a_server_that_only_one_has_is_taken_as_it_is():
    both = merged([("a", state(s1=100)), ("b", state(s1=100, s2=50))], {})
    assert weights_of(both) == {"s1": 100, "s2": 50}
