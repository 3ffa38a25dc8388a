"""What happens before the first round: learning, and looking for the best setting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dial.errors import LabUnquiet
from dial_lab import learning, patience
from dial_lab.addresses import Address
from dial_lab.apache import ApacheOnCpu
from dial_lab.block import Site
from dial_lab.calibration import Calibration
from dial_lab.cgroups import Cgroups
from dial_lab.loadgen import Results
from dial_lab.one_cache import Apart
from dial_lab.policies import Policy, policy
from dial_lab.reaction import Phases, Reaction
from dial_lab.report import BlockResult
from dial_lab.request import Request
from dial_lab.resources import LLC
from dial_lab.scenarios import scenario
from dial_lab.topology import Machine

REQUEST = Request(
    scenario=scenario("cpu"),
    policies=(policy("ice"), policy("dial"), policy("roundrobin")),
    load=0.5,
    rate_per_s=None,
    severity=0.5,
    contended_s=60.0,
    rounds=3,
    percentile=90.0,
    seed=7,
    learn_once=True,
)

VICTIM = Machine("s1", 0, Cgroups(Path("/none"), True, ()), 0.8)

SITE = Site(
    REQUEST.scenario, (VICTIM,), {"s1": Address("s1", 1)}, (), 0.5, 100.0, 90.0, 7, REQUEST.phases
)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience.time, "sleep", lambda _: None)


class Said:
    """A view that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def show(self, _: object) -> None:
        pass


def block(tried: Policy, phases: Phases, *, latency_ms: float = 9.0, late_ms: float = 0.1):
    count = 100
    at_s = np.linspace(0.0, phases.end_s, count, endpoint=False)
    results = Results(
        at_s,
        np.full(count, late_ms),
        np.full(count, latency_ms),
        np.full(count, 200, dtype=np.int16),
        np.zeros(count, dtype=np.int16),
        ("s1",),
    )
    return BlockResult(tried.name, phases, results, None)


def test_the_best_setting_is_looked_for_with_requests_that_no_round_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    t90_ms = {"0.05": 50.0, "0.1": 20.0, "0.2": 10.0, "0.3": 15.0, "0.4": 30.0}
    streams = set()

    def run_block(site, tried, stream, *_, show):
        streams.add(stream)
        assert site.phases == Phases(0.0, 15.0, 0.0)
        return block(tried, site.phases, latency_ms=t90_ms[tried.setting])

    monkeypatch.setattr(learning, "run_block", run_block)
    found = learning.tuned(REQUEST, SITE, policy("ice"), tmp_path, Said())
    assert found == replace(policy("ice"), setting="0.2")
    assert not streams & set(range(REQUEST.rounds))


def test_a_policy_without_candidates_is_as_it_is(tmp_path: Path) -> None:
    assert learning.tuned(REQUEST, SITE, policy("dial"), tmp_path, Said()) == policy("dial")


def test_what_is_learnt_beside_somebody_else_is_learnt_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    learnt = tmp_path / "memory"
    late_ms = [40.0, 0.5]
    memories = []

    def run_block(site, tried, *_):
        memory = site.memory / tried.name
        memories.append(memory.exists())
        memory.mkdir(parents=True)
        return block(tried, site.phases, late_ms=late_ms[len(memories) - 1])

    monkeypatch.setattr(learning, "run_block", run_block)
    said = Said()
    learning.learn(REQUEST, SITE, learnt, tmp_path, said)
    # Once more, from nothing, and then it was quiet; who has no controller does not learn.
    assert memories == [False, False]
    assert said.notes[1] == (
        "the generator was 40 ms late: something else had the computer; trying again in 20 s"
    )


def test_what_is_learnt_while_load_is_moved_is_learnt_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = []

    def run_block(site, tried, *_):
        runs.append(tried.name)
        (site.memory / tried.name).mkdir(parents=True)
        reaction = Reaction(None, None, 0, 1, {}, None, (), load_moved=len(runs) == 1)
        return replace(block(tried, site.phases), reaction=reaction)

    monkeypatch.setattr(learning, "run_block", run_block)
    said = Said()
    learning.learn(REQUEST, SITE, tmp_path / "memory", tmp_path, said)
    assert runs == ["dial", "dial"]
    assert said.notes[1] == (
        "dial moved load, and nobody had been started: something else had the computer; "
        "trying again in 20 s"
    )


IN_THE_CACHE = replace(
    SITE,
    scenario=replace(scenario("llc"), resource=LLC),
    served={"s1": Calibration(quiet_rps=160.0, contended_rps=80.0)},
)
"""In which a load takes the victim 50 ns alone and 100 beside its neighbour."""


def in_the_cache(touch_ns: float, tried: Policy, site: Site) -> BlockResult:
    """A block of 100 requests at the victim, each of the mean cost."""
    cpu_s = 100 * touch_ns * site.scenario.resource.cost.mean / 1e9
    return replace(block(tried, site.phases), victim_cpu_s=cpu_s)


def test_what_is_learnt_beside_a_stranger_in_the_cache_is_learnt_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    touch_ns = [80.0, 67.0, 66.0]
    memories = []

    def run_block(site, tried, *_):
        memory = site.memory / tried.name
        memories.append(memory.exists())
        memory.mkdir(parents=True)
        return in_the_cache(touch_ns[len(memories) - 1], tried, site)

    monkeypatch.setattr(learning, "run_block", run_block)
    said = Said()
    learning.learn(REQUEST, IN_THE_CACHE, tmp_path / "memory", tmp_path, said)
    assert memories == [False, False, False]
    assert said.notes[1] == (
        "s1 needed 80 ns of CPU time for one of its touches, 67 at most is quiet where it needs "
        "50 alone and 100 beside its neighbour: something else had the computer; "
        "trying again in 20 s"
    )


def test_what_is_learnt_on_cores_that_somebody_else_slows_is_learnt_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = [0.6, 0.2]

    def run_block(site, tried, *_):
        (site.memory / tried.name).mkdir(parents=True)
        return replace(in_the_cache(50.0, tried, site), apart=Apart(0.0, 0.0, slow.pop(0)))

    monkeypatch.setattr(learning, "run_block", run_block)
    said = Said()
    learning.learn(REQUEST, IN_THE_CACHE, tmp_path / "memory", tmp_path, said)
    assert slow == []
    assert "for 60% of the time a line took 18 ns and more" in said.notes[1]


APACHE = replace(SITE, scenario=replace(SITE.scenario, resource=ApacheOnCpu()))


@pytest.mark.parametrize(
    ("site", "disturbed", "quiet", "why"),
    [
        (
            SITE,
            {"stolen": 0.1},
            {"stolen": 0.01},
            "for 10.0% of the time the hypervisor ran somebody else",
        ),
        (
            APACHE,
            {"slowdown": 1.3},
            {"slowdown": 1.02},
            "work took 30% longer than machines were given more time for it",
        ),
    ],
    ids=["cores stolen", "slow cores where requests are work"],
)
def test_what_is_learnt_while_others_have_the_cores_is_learnt_anew(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    site: Site,
    disturbed: dict[str, float],
    quiet: dict[str, float],
    why: str,
) -> None:
    found = [disturbed, quiet]

    def run_block(site, tried, *_):
        (site.memory / tried.name).mkdir(parents=True)
        return replace(block(tried, site.phases), **found.pop(0))

    monkeypatch.setattr(learning, "run_block", run_block)
    said = Said()
    learning.learn(REQUEST, site, tmp_path / "memory", tmp_path, said)
    assert found == []
    assert why in said.notes[1]


def test_a_run_whose_controller_could_not_learn_in_quiet_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = []

    def run_block(site, tried, *_):
        runs.append(tried.name)
        return in_the_cache(80.0, tried, site)

    monkeypatch.setattr(learning, "run_block", run_block)
    with pytest.raises(LabUnquiet, match="something else had the computer"):
        learning.learn(REQUEST, IN_THE_CACHE, tmp_path / "memory", tmp_path, Said())
    assert len(runs) == patience.TRIES


def test_each_block_begins_with_what_was_learnt_before_the_first(tmp_path: Path) -> None:
    learnt, where = tmp_path / "memory", tmp_path / "1-dial"
    (learnt / "dial").mkdir(parents=True)
    (learnt / "dial" / "state").write_text("quiet")
    site = learning.remembering(SITE, policy("dial"), learnt, where)
    (site.memory / "dial" / "state").write_text("contended")
    assert (learnt / "dial" / "state").read_text() == "quiet"
    assert learning.remembering(SITE, policy("roundrobin"), learnt, where).memory is None
