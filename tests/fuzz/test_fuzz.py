"""Every parser of what comes from outside, on real outputs, on inputs that once broke it, and on
inputs that are nearly right."""

from __future__ import annotations

import os
from functools import cache

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dial_haproxy.parser import MAX_LINE_BYTES, LogParser

from .contract import SERVICE
from .mutations import inputs
from .targets import TARGETS, seeds

EXAMPLES = 150
"""Of each target: all take five seconds or so; ``make fuzz`` is there for more."""

KEPT = [(name, kept) for name in TARGETS for kept in seeds(name)]


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch):
    for name in [name for name in os.environ if name.startswith("DIAL_")]:
        monkeypatch.delenv(name)


@cache
def changed_seeds(name: str) -> st.SearchStrategy[bytes]:
    return inputs(seeds(name).values())


@pytest.mark.parametrize(("name", "kept"), KEPT, ids=[f"{n}-{k}" for n, k in KEPT])
def test_a_kept_input_is_taken_or_refused_as_its_name_says(name, kept):
    assert TARGETS[name](seeds(name)[kept]) is not kept.startswith("refused-")


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
# The environment is the same for all examples, so one fixture for all of them is right.
@hypothesis_settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_input_is_taken_soundly_or_refused_with_one_clear_line(name, data):
    TARGETS[name](data.draw(changed_seeds(name)))


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_starts_from_an_input_that_it_takes(name):
    assert any(not kept.startswith("refused-") for kept in seeds(name))


def test_a_line_too_long_counts_once_when_the_stream_ends_within_it():
    parser = LogParser(SERVICE, "dial")
    assert parser.feed(b"x" * (MAX_LINE_BYTES + 1)).malformed == 1
    assert parser.feed(b"the rest of it").malformed == 0
    assert parser.finish().malformed == 0


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_line_of_the_largest_length_reads_alike_wherever_it_is_cut(cut):
    start = b"app,s1,1795211945545012,1795211945546393,0,0,1,1,200,----,0,0,"
    for length, rows in ((MAX_LINE_BYTES - 1, 1), (MAX_LINE_BYTES, 0)):
        stream = start.ljust(length, b"x") + b"\r\n"
        parser = LogParser(SERVICE, "dial")
        pieces = stream[: len(stream) - cut], stream[len(stream) - cut :]
        batches = [parser.feed(piece) for piece in pieces]
        assert sum(map(len, batches)) == rows
        assert sum(batch.malformed for batch in batches) == 1 - rows
