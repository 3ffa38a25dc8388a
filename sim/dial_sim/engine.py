"""Requests through a balancer into queues, in the order of time, compiled by numba.

Model
    Requests come as a Poisson process.  Each is sent by one of B balancers, drawn evenly, to one of
    n servers by its policy, and served first come, first served.  A request needs an exponential
    amount of work, in seconds of a whole server.  A neighbour leaves a server the part ``left`` of
    itself, from one moment to another.

    A server is either *shared* (it works at the speed ``left``), or has a *quota*: in each period
    it works at full speed until ``quota * left`` of the period is used, then waits for the next
    one, as a Linux cgroup with a CPU quota does.

Policies
    ``ROUND_ROBIN`` sends to the server whose turn, 1/weight after its last, comes first;
    ``LEASTCONN`` to the lowest (in flight + 1) / weight, an idle server counting 0, ties by turns,
    as HAProxy 2.6 has it; ``RANDOM_2`` draws two and takes the one with fewer in flight.  Each
    balancer knows the requests that it has sent itself.  Under the first
    two a server of weight 0 gets a request only where all have it.

Cost
    Of n servers the next one is at the root of a tournament tree, and the next departure on top of
    a heap, so that a request takes O(log n).

Departures from what real servers do
    A request that is being served when a neighbour comes or goes is served to its end as it was
    begun: with neighbours of minutes and requests of milliseconds that is one request a visit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

ROUND_ROBIN, LEASTCONN, RANDOM_2 = 0, 1, 2

HISTOGRAM_LEAST_S = 1e-5
HISTOGRAM_RATIO = 1.01
HISTOGRAM_SIZE = 2048
"""Buckets of 1 % from 10 microseconds to two hours."""

_IN_FLIGHT, _SEQUENCE, _OVERFLOW, _DROPPED = 0, 1, 2, 3
_NEXT_S, _NOW_S = 0, 1


class World(NamedTuple):
    """All that changes, as arrays; n servers, B balancers, at most F requests in flight.

    Attributes
    ----------
    random
        uint64[1]: state of the generator.
    clock
        float64[2]: the next arrival, and now, in seconds.
    counts
        int64[4]: requests in flight, turns given, requests that found no room, times not kept.
    free_s
        float64[n]: when a server has served all that it has.
    from_s, until_s, left
        float64[n]: a neighbour's time, and what it leaves of the server.
    period, used
        int64[n] and float64[n]: of a quota, the period that was last worked in, and its use.
    dear
        float64[2]: the part of requests that cost more than others, and how many times the mean.
    weight
        float64[n].
    key, turn, tree, flying
        float64, int64 [B, n]: what a balancer orders by; int64[B, 2 m] winners of the tournament,
        m the power of two from n on; int64[B, n] requests in flight.
    heap_s, heap_server, heap_balancer, heap_since
        [F]: departures, as a heap by time, and the arrivals that they belong to.
    times_s, kept
        float32[n, k] and int64[n]: response times of the interval.
    sent, ran_s, waited_s
        [n]: arrivals, work done, and what it took longer than at full speed, of the interval.
    histogram
        int64[HISTOGRAM_SIZE]: response times of all.
    """

    random: NDArray[np.uint64]
    clock: NDArray[np.float64]
    counts: NDArray[np.int64]
    free_s: NDArray[np.float64]
    from_s: NDArray[np.float64]
    until_s: NDArray[np.float64]
    left: NDArray[np.float64]
    period: NDArray[np.int64]
    used: NDArray[np.float64]
    dear: NDArray[np.float64]
    weight: NDArray[np.float64]
    key: NDArray[np.float64]
    turn: NDArray[np.int64]
    tree: NDArray[np.int64]
    flying: NDArray[np.int64]
    heap_s: NDArray[np.float64]
    heap_server: NDArray[np.int32]
    heap_balancer: NDArray[np.int32]
    heap_since: NDArray[np.float64]
    times_s: NDArray[np.float32]
    kept: NDArray[np.int64]
    sent: NDArray[np.int64]
    ran_s: NDArray[np.float64]
    waited_s: NDArray[np.float64]
    histogram: NDArray[np.int64]


def new_world(
    servers: int,
    *,
    balancers: int,
    seed: int,
    kept: int,
    in_flight: int = 4_000_000,
    dear_part: float = 0.0,
    dear_times: float = 1.0,
) -> World:
    """An empty service at time 0, all weights 1.

    Parameters
    ----------
    servers, balancers : n and B.
    seed : of everything that is drawn.
    kept : response times kept of one server and interval.
    in_flight : F.
    dear_part, dear_times : the part of requests that cost more, and how many times the mean.

    Raises
    ------
    ValueError
        If that part alone costs more than all.
    """
    if not 0.0 <= dear_part < 1.0 or dear_part * dear_times > 1.0:
        raise ValueError(
            f"dear_part {dear_part:g}, dear_times {dear_times:g}: a part is below 1, and all of it "
            "at most as dear as all requests"
        )
    leaves = 1 << max(servers - 1, 1).bit_length()
    shape = (balancers, servers)
    world = World(
        random=np.array([seed * 2 + 1], np.uint64),
        clock=np.zeros(2),
        counts=np.zeros(4, np.int64),
        free_s=np.zeros(servers),
        from_s=np.full(servers, np.inf),
        until_s=np.full(servers, np.inf),
        left=np.ones(servers),
        period=np.full(servers, -1, np.int64),
        used=np.zeros(servers),
        dear=np.array([dear_part, dear_times]),
        weight=np.ones(servers),
        key=np.zeros(shape),
        turn=np.broadcast_to(np.arange(servers), shape).copy(),
        tree=np.full((balancers, 2 * leaves), -1, np.int64),
        flying=np.zeros(shape, np.int64),
        heap_s=np.empty(in_flight),
        heap_server=np.empty(in_flight, np.int32),
        heap_balancer=np.empty(in_flight, np.int32),
        heap_since=np.empty(in_flight),
        times_s=np.empty((servers, kept), np.float32),
        kept=np.zeros(servers, np.int64),
        sent=np.zeros(servers, np.int64),
        ran_s=np.zeros(servers),
        waited_s=np.zeros(servers),
        histogram=np.zeros(HISTOGRAM_SIZE, np.int64),
    )
    world.counts[_SEQUENCE] = servers
    plant(world)
    return world


@njit(cache=True)
def _uniform(random):
    """A number in (0, 1): splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (float(z >> np.uint64(11)) + 0.5) / 9007199254740992.0


@njit(cache=True)
def _exponential(random, mean):
    return -mean * math.log(_uniform(random))


@njit(cache=True)
def _work(world, mean):
    """Of one request: exponential, about a mean that a part of them exceeds."""
    part, times = world.dear
    if part == 0.0:
        return _exponential(world.random, mean)
    if _uniform(world.random) < part:
        return _exponential(world.random, mean * times)
    return _exponential(world.random, mean * (1.0 - part * times) / (1.0 - part))


@njit(cache=True)
def _before(key, turn, a, b):
    """Whether server a's turn comes before server b's; -1 is nobody."""
    if b < 0:
        return True
    if a < 0:
        return False
    return key[a] < key[b] or (key[a] == key[b] and turn[a] < turn[b])


@njit(cache=True)
def _climb(tree, key, turn, server):
    """Play the matches again that a server has a part in."""
    at = (tree.shape[0] // 2 + server) // 2
    while at >= 1:
        a, b = tree[2 * at], tree[2 * at + 1]
        tree[at] = a if _before(key, turn, a, b) else b
        at //= 2


@njit(cache=True)
def plant(world):
    """Play all matches, after keys or weights have changed."""
    balancers, servers = world.key.shape
    leaves = world.tree.shape[1] // 2
    for balancer in range(balancers):
        tree, key, turn = world.tree[balancer], world.key[balancer], world.turn[balancer]
        for server in range(servers):
            tree[leaves + server] = server
        for at in range(leaves - 1, 0, -1):
            a, b = tree[2 * at], tree[2 * at + 1]
            tree[at] = a if _before(key, turn, a, b) else b


@njit(cache=True)
def _load_key(in_flight, weight):
    if weight == 0.0:
        return np.inf
    return 0.0 if in_flight == 0 else (in_flight + 1.0) / weight


@njit(cache=True)
def reweigh(world, policy, weights):
    """Put other weights in force."""
    balancers, servers = world.key.shape
    for server in range(servers):
        world.weight[server] = weights[server]
    for balancer in range(balancers):
        if policy == ROUND_ROBIN:
            # Turns begin anew, spread over a round, or all with the same weight would meet.
            for server in range(servers):
                drawn = _uniform(world.random)
                drained = weights[server] == 0.0
                world.key[balancer, server] = np.inf if drained else drawn / weights[server]
        else:
            for server in range(servers):
                world.key[balancer, server] = _load_key(
                    world.flying[balancer, server], weights[server]
                )
    plant(world)


@njit(cache=True)
def _push(world, at_s, server, balancer, since_s):
    size = world.counts[_IN_FLIGHT]
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if world.heap_s[parent] <= at_s:
            break
        world.heap_s[at] = world.heap_s[parent]
        world.heap_server[at] = world.heap_server[parent]
        world.heap_balancer[at] = world.heap_balancer[parent]
        world.heap_since[at] = world.heap_since[parent]
        at = parent
    world.heap_s[at] = at_s
    world.heap_server[at] = server
    world.heap_balancer[at] = balancer
    world.heap_since[at] = since_s
    world.counts[_IN_FLIGHT] = size + 1


@njit(cache=True)
def _pop(world):
    """Take the first departure off the heap; it was read before."""
    size = world.counts[_IN_FLIGHT] - 1
    world.counts[_IN_FLIGHT] = size
    at_s = world.heap_s[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and world.heap_s[child + 1] < world.heap_s[child]:
            child += 1
        if world.heap_s[child] >= at_s:
            break
        world.heap_s[at] = world.heap_s[child]
        world.heap_server[at] = world.heap_server[child]
        world.heap_balancer[at] = world.heap_balancer[child]
        world.heap_since[at] = world.heap_since[child]
        at = child
    world.heap_s[at] = at_s
    world.heap_server[at] = world.heap_server[size]
    world.heap_balancer[at] = world.heap_balancer[size]
    world.heap_since[at] = world.heap_since[size]


@njit(cache=True)
def _depart(world, policy):
    """The request that is done first is done."""
    server, balancer = world.heap_server[0], world.heap_balancer[0]
    took_s = world.heap_s[0] - world.heap_since[0]
    _pop(world)
    flying = world.flying[balancer, server] - 1
    world.flying[balancer, server] = flying
    if policy == LEASTCONN:
        world.key[balancer, server] = _load_key(flying, world.weight[server])
        world.turn[balancer, server] = world.counts[_SEQUENCE]
        world.counts[_SEQUENCE] += 1
        _climb(world.tree[balancer], world.key[balancer], world.turn[balancer], server)
    kept = world.kept[server]
    if kept < world.times_s.shape[1]:
        world.times_s[server, kept] = took_s
        world.kept[server] = kept + 1
    else:
        world.counts[_DROPPED] += 1
    bucket = int(math.log(max(took_s, HISTOGRAM_LEAST_S) / HISTOGRAM_LEAST_S) / _LN_RATIO)
    world.histogram[min(bucket, HISTOGRAM_SIZE - 1)] += 1


_LN_RATIO = math.log(HISTOGRAM_RATIO)


@njit(cache=True)
def _choose(world, policy, balancer):
    servers = world.key.shape[1]
    flying = world.flying[balancer]
    if policy == RANDOM_2:
        a = int(_uniform(world.random) * servers)
        b = int(_uniform(world.random) * servers)
        server = a if flying[a] <= flying[b] else b
        flying[server] += 1
        return server
    server = world.tree[balancer, 1]
    flying[server] += 1
    key, turn = world.key[balancer], world.turn[balancer]
    if policy == ROUND_ROBIN:
        key[server] += np.inf if world.weight[server] == 0.0 else 1.0 / world.weight[server]
    else:
        key[server] = _load_key(flying[server], world.weight[server])
    turn[server] = world.counts[_SEQUENCE]
    world.counts[_SEQUENCE] += 1
    _climb(world.tree[balancer], key, turn, server)
    return server


@njit(cache=True)
def _finish(world, server, begin_s, work_s, quota, period_s):  # noqa: PLR0917 - numba's are
    """When work that begins now will be done."""
    there = world.from_s[server] <= begin_s < world.until_s[server]
    left = world.left[server] if there else 1.0
    if quota == 0.0:
        return begin_s + work_s / left
    credit_s = quota * left * period_s
    at_s, number = begin_s, int(begin_s / period_s)
    used_s = world.used[server] if number == world.period[server] else 0.0
    while True:
        end_s = (number + 1) * period_s
        able_s = max(min(credit_s - used_s, end_s - at_s), 0.0)
        if work_s <= able_s:
            world.period[server], world.used[server] = number, used_s + work_s
            return at_s + work_s
        work_s -= able_s
        number, at_s, used_s = number + 1, end_s, 0.0


@njit(cache=True)
def advance(world, policy, until_s, rate_per_s, work_s, quota, period_s):  # noqa: PLR0917
    """Let time pass until ``until_s``.

    Parameters
    ----------
    world : changed in place.
    policy : one of the three.
    until_s : end of the interval.
    rate_per_s : at which requests arrive in it.
    work_s : mean work of a request.
    quota, period_s : of a server's own time, and its period; 0 where servers have none.
    """
    balancers = world.key.shape[0]
    world.clock[_NEXT_S] = world.clock[_NOW_S] + _exponential(world.random, 1.0 / rate_per_s)
    while world.clock[_NEXT_S] < until_s:
        now_s = world.clock[_NEXT_S]
        while world.counts[_IN_FLIGHT] > 0 and world.heap_s[0] <= now_s:
            _depart(world, policy)
        balancer = 0 if balancers == 1 else int(_uniform(world.random) * balancers)
        if world.counts[_IN_FLIGHT] >= world.heap_s.size:
            world.counts[_OVERFLOW] += 1
        else:
            server = _choose(world, policy, balancer)
            begin_s = max(now_s, world.free_s[server])
            work = _work(world, work_s)
            end_s = _finish(world, server, begin_s, work, quota, period_s)
            world.free_s[server] = end_s
            world.sent[server] += 1
            world.ran_s[server] += work
            world.waited_s[server] += end_s - begin_s - work
            _push(world, end_s, server, balancer, now_s)
        world.clock[_NEXT_S] = now_s + _exponential(world.random, 1.0 / rate_per_s)
    while world.counts[_IN_FLIGHT] > 0 and world.heap_s[0] <= until_s:
        _depart(world, policy)
    world.clock[_NOW_S] = until_s


def begin_interval(world: World) -> None:
    """Forget what was counted of the last interval."""
    for counted in (world.kept, world.sent, world.ran_s, world.waited_s):
        counted[:] = 0


def percentiles_ms(histogram: NDArray[np.int64], *wanted: float) -> list[float]:
    """Percentiles of all response times, off by 1 % at most, in milliseconds."""
    if not histogram.sum():
        return [math.nan for _ in wanted]
    below = np.cumsum(histogram) / histogram.sum()
    buckets = [int(np.searchsorted(below, percentile / 100.0)) for percentile in wanted]
    return [1e3 * HISTOGRAM_LEAST_S * HISTOGRAM_RATIO ** (b + 0.5) for b in buckets]


def refused(world: World) -> int:
    """Requests that found no room among those in flight: the service was far beyond its limit."""
    return int(world.counts[_OVERFLOW])


def not_kept(world: World) -> int:
    """Response times that a controller did not get to see, because an interval had too many."""
    return int(world.counts[_DROPPED])


def in_flight(world: World) -> int:
    """Requests in flight now."""
    return int(world.counts[_IN_FLIGHT])
