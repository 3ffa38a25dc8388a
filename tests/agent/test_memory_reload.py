"""The arithmetic of a reading by hand, and the placing of lines on this interpreter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from random import Random

import pytest
from pydantic import TypeAdapter

from dial.agent.files import Unavailable
from dial.agent.memory_reload import (
    AGE_S,
    CHAINS,
    DEPTH,
    MOST_OF_A_CORE,
    ROUNDS,
    Chain,
    MemoryReload,
    calibrated,
    check_clock,
    scattered_chains,
)
from dial.types import METRIC_NAMES, AgentSample, NoData

STILL: Callable[[], int] = lambda: 0  # noqa: E731

PAUSE_NS = round(AGE_S * 1e9)

Passes = list[tuple[int, int]]
"""First and second pass over each chain, ns."""


def clock(rounds: list[tuple[int, Passes]]) -> Iterator[int]:
    """What the clock shows at each look of one reading; a round begins with its pause."""
    now_ns = 5_000
    yield now_ns
    for pause_ns, passes in rounds:
        yield now_ns
        yield (now_ns := now_ns + pause_ns)
        for first_ns, second_ns in passes:
            yield now_ns
            yield (now_ns := now_ns + first_ns)
            yield (now_ns := now_ns + second_ns)


def reading(*rounds: tuple[int, Passes]) -> float | NoData:
    assert len(rounds) == ROUNDS
    chains: list[Chain] = [()] * len(rounds[0][1])
    looks = clock(list(rounds))
    pauses_s: list[float] = []
    value = MemoryReload(chains, lambda: next(looks), STILL, pauses_s.append).read()
    assert pauses_s == [AGE_S] * ROUNDS
    assert next(looks, None) is None
    return value


def tuples(chain: Chain) -> list[int]:
    """Addresses from the outermost in, the shared empty one left out."""
    return [id(chain), *tuples(chain[0])] if chain else []


def test_a_reading_is_the_first_pass_less_the_second_by_lines() -> None:
    # 64 lines: (1640 - 360) / 64 = 20 ns; the first chain only warms the path up
    passes = [(9_999, 0), *[(1_640, 360)] * 3]
    assert reading(*[(PAUSE_NS, passes)] * ROUNDS) == 20.0


def test_time_stolen_during_one_pass_does_not_show() -> None:
    usual = [(0, 0), *[(1_640, 360)] * 3]
    stolen = [(0, 0), (4_001_640, 360), (1_640, 4_000_360), (1_640, 360)]
    assert reading(*[(PAUSE_NS, usual)] * (ROUNDS - 1), (PAUSE_NS, stolen)) == 20.0


def test_a_round_whose_pause_was_too_long_does_not_count() -> None:
    usual, older = [(0, 0), (1_640, 360)], [(0, 0), (9_960, 360)]
    late_ns = 2 * PAUSE_NS
    assert reading((PAUSE_NS, usual), *[(late_ns, older)] * (ROUNDS - 1)) == 20.0
    starved = reading(*[(late_ns, older)] * ROUNDS)
    assert isinstance(starved, NoData)
    assert "too little CPU" in starved.reason


def test_lines_that_never_left_are_a_wait_of_zero_not_less() -> None:
    passes = [(0, 0), (350, 360), (352, 360), (354, 360)]
    assert reading(*[(PAUSE_NS, passes)] * ROUNDS) == 0.0


def test_after_a_reading_the_probe_rests_500_times_what_it_took() -> None:
    now_ns = 0
    cpu_ns = iter([0, 400_000, 400_000, 400_000])  # the first reading takes 0.4 ms, the next 0
    probe = MemoryReload([(), ()], lambda: now_ns, lambda: next(cpu_ns), lambda _: None)
    assert probe.read() == 0.0
    now_ns = 199_999_999
    resting = probe.read()
    assert isinstance(resting, NoData)
    assert "0.400 ms" in resting.reason
    assert "0.2%" in resting.reason
    now_ns = 200_000_000  # 0.4 ms / 0.002
    assert probe.read() == 0.0
    assert MOST_OF_A_CORE == 0.002


def test_a_sample_has_the_newer_reading() -> None:
    probe = MemoryReload([()], STILL, STILL, time.sleep)
    assert probe.rates(12.0, 90.0, 1.0) == {"memory_reload_ns": 90.0}
    assert probe.rates(12.0, NoData("resting"), 1.0) == {"memory_reload_ns": NoData("resting")}


def test_a_recording_of_before_the_probe_still_loads() -> None:
    names = [name for name in METRIC_NAMES if name != "memory_reload_ns"]
    recorded = {"at_s": 1.0, "interval_s": 1.0, **dict.fromkeys(names, 0.5)}
    sample = TypeAdapter(AgentSample).validate_python(recorded)
    assert sample.memory_reload_ns == NoData("not recorded")
    assert sample.throttled_fraction == 0.5


@pytest.mark.parametrize("place", [0, 1, 31, 63])
def test_every_tuple_is_in_another_page_at_the_same_line_of_it(place: int) -> None:
    chains = scattered_chains(3, DEPTH, place, Random(1))
    addresses = [address for chain in chains for address in tuples(chain)]
    assert len({address // 4096 for address in addresses}) == len(addresses) == 3 * DEPTH
    # type, size and member: bytes 8 to 32 of a tuple, all in one line of 64 bytes
    assert {(a + 8) % 4096 // 64 for a in addresses} == {place}
    assert {(a + 31) % 4096 // 64 for a in addresses} == {place}


def test_neighbours_in_a_chain_keep_no_stride() -> None:
    addresses = tuples(scattered_chains(8, DEPTH, 7, Random(1))[0])
    strides = {after - before for before, after in pairwise(addresses)}
    assert len(strides) > DEPTH // 4  # gaps of 8 pages on average, geometric


@pytest.mark.parametrize(
    ("clock_ns", "told"),
    [
        (STILL, "does not advance"),
        (count(step=1_000_000).__next__, "1000000 ns hide"),
    ],
)
def test_a_clock_too_coarse_is_named(clock_ns: Callable[[], int], told: str) -> None:
    with pytest.raises(Unavailable, match=told):
        check_clock(clock_ns)


def test_a_probe_that_cannot_be_built_is_a_reason_and_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    absent = calibrated(Random(1), 1.0, STILL, STILL, time.sleep)
    assert absent == NoData("memory probe: the clock does not advance")
    assert "does not advance" in caplog.text


def test_on_this_machine_it_builds_reads_and_says_what_it_costs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", logger="dial.agent"):
        probe = calibrated(Random(), 1.0, time.perf_counter_ns, time.thread_time_ns, time.sleep)
    if isinstance(probe, NoData):
        pytest.skip(probe.reason)
    assert f"{CHAINS * DEPTH} lines" in caplog.text
    assert probe.cost_ns > 0
    time.sleep(probe.cost_ns / MOST_OF_A_CORE / 1e9)
    value = probe.read()
    if isinstance(value, NoData):  # a machine too busy to pause for 4 ms says so
        assert "too little CPU" in value.reason
        return
    # DRAM is some 100 ns away, 1 us over a remote socket through a nested page walk
    assert 0.0 <= value < 10_000.0
