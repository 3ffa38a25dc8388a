"""What the agent's own encoder writes is what the intake reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dial.agent.wire import encode
from dial.intake.samples import decode_batch
from dial.types import METRIC_NAMES, AgentSample, NoData

absences = st.builds(
    NoData, st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=200)
)
measured = st.floats(0.0, 1.0) | absences
agent_samples = st.builds(
    AgentSample,
    at_s=st.floats(0.0, 2e9),
    interval_s=st.floats(0.1, 3600.0),
    **dict.fromkeys(METRIC_NAMES, measured),
)


@given(st.lists(agent_samples, min_size=1, max_size=3))
def test_samples_arrive_as_they_were_taken(sent: list[AgentSample]) -> None:
    batch = decode_batch(encode("s1", "vm1:42", sent))
    assert (batch.backend, batch.agent, batch.unknown_metrics) == ("s1", "vm1:42", 0)
    assert batch.samples == tuple(sent)
