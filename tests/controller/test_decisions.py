"""Decisions that were made once are made again.

The recordings are of the controller as it was when it looked at one backend after the other, in
format 1.

``service-*``, ``leastconn-*``
    Simulated services of a few backends, on a round robin and under least connections, to which in
    two hundred ticks all happens that the other tests bring about one by one (neighbours on CPU,
    cache and disk, more and less load, agents that die, metrics that are missing, a balancer that
    restarts, backends that leave, orders, another writer), under all strategies.
``own-doing-*``
    The same under least connections, with VMs whose own services, or packets, take their CPU, and
    that ask for load to move.  (``own-doing-57`` was recorded anew when what they ask for in a
    minute became what load is moved for, and when dearer requests of several intervals did not make
    each other less sure.)
    (Some were recorded anew when a moment in which all are slow was a reason no more to bring load
    back; when intervals slower than expected no longer spoke for a neighbour having gone; when no
    rho_bg was told any more of the interval in which something of one's own begins; when it took
    three intervals, not two, for a neighbour to have gone; when the time to connect was no
    symptom any more of a neighbour on the link being there still; when a backend without a T_x
    in the interval before was not far slower for two intervals; when a clear cause was named in the
    interval in which load moves at once; when dearer requests were a reason to ask; when what
    spoke for a neighbour that has gone spoke for no other any more; when no cause was unknown any
    more where the siblings are as slow; when few requests were held to be dear for being few; when
    the drained were asked before their neighbour is forgotten; when response times spoke of a
    victim in the cache whose agent is gone; when a neighbour in the cache might pause; when one
    interval was enough in which three witnesses say the same, with errors of their quiet past;
    when a time to connect had to be clear to name what had no name; and when two of the three were
    enough where load is shifted already.)
``lab``
    A neighbour on the CPU in the lab: the balancer's choice gives it away before T_x is sure.
    (Recorded anew when three witnesses named it in the interval in which two moved load.)
``few-requests-*``
    The same at a quarter of the load, 27 requests a second, as far as load moves: never, until
    waits for the CPU that are far out were learnt as less, and of 11 as one and a half deviations.

Two of the simulated ones were recorded anew for that, in which only what is said changed, and
``service-31``, in which a backend has a neighbour on its CPU, and later one in the cache as well:
it is named for the former now, whose waits had become usual until then.  In ``own-doing-57`` two
intervals are asked about.  When that was one and a half deviations only what is said changed, but
for ``few-requests-*``, which end sooner.  When one interval was enough of a wait for the CPU that
leaves no doubt, two of those ended sooner again, ``service-25``, ``service-36`` and
``leastconn-35`` found such a neighbour an interval or two earlier, and in two more other reasons
are given.

A decision that is to be another one from now on is a reason to record anew:
``python tests/controller/test_decisions.py``.
"""

from __future__ import annotations

import lzma
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from dial.controller.policy import Policy
from dial.controller.recording import Recorder, Recording
from dial.controller.step import step
from dial.settings import RecordSettings

RECORDINGS = sorted(Path(__file__).with_name("recordings").glob("*.jsonl.xz"))

_CLOSE = 1e-9
"""Of a number: sums in another order, and another machine's logarithms."""


def differences(recorded: object, decided: object, where: str) -> list[str]:
    """Where the two are not the same."""
    if isinstance(recorded, float) and isinstance(decided, float):
        same = decided == pytest.approx(recorded, rel=_CLOSE, abs=_CLOSE)
        return [] if same else [f"{where}: {recorded!r} is now {decided!r}"]
    if is_dataclass(recorded) and type(recorded) is type(decided):
        return [
            line
            for f in fields(recorded)
            for line in differences(
                getattr(recorded, f.name), getattr(decided, f.name), f"{where}.{f.name}"
            )
        ]
    if isinstance(recorded, tuple) and isinstance(decided, tuple) and len(recorded) == len(decided):
        pairs = enumerate(zip(recorded, decided, strict=True))
        return [line for i, pair in pairs for line in differences(*pair, f"{where}[{i}]")]
    return [] if recorded == decided else [f"{where}: {recorded!r} is now {decided!r}"]


def unpacked(packed: Path, path: Path):
    """A recording, written to a path, with the policy and the state that it begins with."""
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    recording = Recording(path)
    return recording, Policy.of(recording.header.policy), recording.header.state


def test_there_are_recordings():
    assert RECORDINGS


@pytest.mark.parametrize("packed", RECORDINGS, ids=lambda path: path.name.split(".")[0])
def test_decisions_are_those_that_were_recorded(packed, tmp_path):
    recording, policy, state = unpacked(packed, tmp_path / "recording.jsonl")
    for tick in recording.ticks():
        state, plan = step(policy, state, tick.observation)
        assert differences(tick.plan, plan, f"tick {plan.tick}") == []


@pytest.mark.parametrize("number", [3, 11])
def test_load_leaves_a_neighbour_on_the_cpu_though_few_requests_are_as_quick_as_ever_in_between(
    number, tmp_path
):
    packed = next(path for path in RECORDINGS if path.name.startswith(f"few-requests-{number}."))
    recording, policy, state = unpacked(packed, tmp_path / "recording.jsonl")
    moved, quick_since_slow = [], False
    was_slow = False
    for tick in recording.ticks():
        state, plan = step(policy, state, tick.observation)
        victim = plan.backends[0]
        t_x_ms = tick.observation.backends[0].window.t_x_ms
        slow = isinstance(t_x_ms, float) and t_x_ms > victim.verdict.expected_t_x_ms
        quick_since_slow |= was_slow and isinstance(t_x_ms, float) and not slow
        was_slow |= slow
        moved.append(victim.weight < 100)
    assert quick_since_slow
    assert moved == [False] * (len(moved) - 1) + [True]


def record_anew() -> None:
    """Write down what is decided now of the same observations."""
    for packed in RECORDINGS:
        path = packed.with_suffix("")
        recording, policy, state = unpacked(packed, path)
        anew = RecordSettings(path=path.with_suffix(".anew"), max_mib=1024)
        recorder = Recorder(anew, recording.header.policy)
        for tick in recording.ticks():
            before = state
            state, plan = step(policy, before, tick.observation)
            recorder.tick(before, tick.observation, plan)
        recorder.close()
        packed.write_bytes(lzma.compress(anew.path.read_bytes(), preset=9))
        anew.path.unlink()
        path.unlink()


if __name__ == "__main__":
    record_anew()
