"""Scenarios of one VM: what their reports make of what was measured."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace

import numpy as np
import pytest

from dial.agent.wire import encode
from dial.types import METRIC_NAMES, AgentSample, Cause, NoData
from dial_lab import own_services, softirq, told
from dial_lab.inside import INSIDE

CAPACITY_CORES = 0.6


def sample(at_s: float, *, others: float = 0.0, packets: float = 0.0) -> AgentSample:
    """Of a VM whose other services, or packets, take so much of its CPU."""
    metrics = dict.fromkeys(METRIC_NAMES, NoData("not measured")) | {
        "cpu_usr_cores": CAPACITY_CORES * (0.25 + others),
        "cpu_sys_cores": 0.05 * CAPACITY_CORES,
        "cpu_capacity_cores": CAPACITY_CORES,
        "own_services_cores": CAPACITY_CORES * others,
        "net_softirq_cores": CAPACITY_CORES * packets,
    }
    return AgentSample(at_s, 1.0, **metrics)  # type: ignore[arg-type]


def test_both_are_offered() -> None:
    assert set(INSIDE) == {"own-services", "softirq"}


@pytest.mark.parametrize(
    ("cause", "share"),
    [(Cause.OWN_SERVICES, {"others": 0.6}), (Cause.SOFTIRQ, {"packets": 0.6})],
)
def test_a_vm_slow_of_its_own_doing_is_told_so_and_has_no_neighbour(
    cause: Cause, share: dict[str, float]
) -> None:
    rng = np.random.default_rng(7)
    at_s = np.arange(0.0, 60.0, 0.01)
    disturbed = at_s >= 40.0
    latency_ms = rng.exponential(np.where(disturbed, 30.0, 5.0))
    samples = [sample(1000.0 + k + 0.9, **(share if k >= 40 else {})) for k in range(60)]
    seen = [told._observation(k, 1000.0, (at_s, latency_ms), samples) for k in range(60)]
    verdicts = list(told._judged(seen))
    assert not any(each.cause.costs_capacity for each in verdicts[:40])
    assert [each.cause for each in verdicts[43:]] == [cause] * 17
    known = [each.rho_bg for each in verdicts if not isinstance(each.rho_bg, NoData)]
    assert max(known, default=0.0) < 0.1


def test_a_tick_has_the_requests_that_ended_in_it_and_the_newest_sample() -> None:
    at_s = np.array([0.1, 0.2, 0.9, 1.5])
    latency_ms = np.array([10.0, np.inf, 200.0, 10.0])
    samples = [sample(100.5), sample(100.9), sample(103.0)]
    seen = told._observation(0, 100.0, (at_s, latency_ms), samples).backends[0]
    # Three arrive; one ends at once, one never, one in the next second.
    assert (seen.window.requests, seen.window.rate_per_s) == (1, 3.0)
    assert isinstance(seen.window.t_x_ms, NoData)
    assert seen.sample == samples[1]
    assert told._observation(1, 100.0, (at_s, latency_ms), samples).backends[0].window.requests == 2


def test_the_listener_takes_what_an_agent_posts() -> None:
    got: list[AgentSample] = []
    with told._listener(got) as url:
        body = encode("vm", "host:1", [sample(5.0)])
        request = urllib.request.Request(f"{url}/v1/samples", data=body, method="POST")
        with urllib.request.urlopen(request, timeout=20.0) as answer:
            assert answer.status == 202
    assert got[0].own_services_cores == 0.0


def test_the_penalty_is_the_median_of_the_rounds() -> None:
    def outcome(passes_per_s: float) -> softirq.Outcome:
        return softirq.Outcome(passes_per_s, 1e5)

    rounds = [
        {"baseline": outcome(12.0), "flooded": outcome(3.0), "charged": outcome(charged)}
        for charged in (10.0, 12.0, 6.0)
    ]
    report = softirq.as_json(rounds)
    assert report["penalty"] == {"flooded": 4.0, "charged": 1.2}
    assert json.loads(json.dumps(report))["rounds"][0]["baseline"]["passes_per_s"] == 12.0


def test_convergence_ends_with_three_windows_in_which_both_targets_are_met() -> None:
    at_s = np.arange(0.0, 45.0, 0.05)
    # After the step at 15 s the web service misses its 80 ms for ten seconds.
    web = np.where((at_s >= 15.0) & (at_s < 25.0), 200.0, 20.0)
    results = {"web": (at_s, web), "cache": (at_s, np.full(len(at_s), 10.0))}
    outcome = own_services._outcome(results, 45.0, 0.1)
    assert outcome.met
    assert outcome.converged_s == 10.0
    assert outcome.utilisation == pytest.approx(0.5)
    never = {**results, "web": (at_s, np.full(len(at_s), 200.0))}
    assert own_services._outcome(never, 45.0, 0.1) == replace(
        outcome,
        p95_ms={"web": 200.0, "cache": 10.0},
        met=False,
        converged_s=None,
        utilisation=0.0,
    )
