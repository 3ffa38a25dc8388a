"""The watchdog: acts on an expired lease, on nothing else, and never gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dial.errors import BalancerUnreachable
from dial.lease import Lease, LeaseFile, Moment
from dial.types import ApplyReport, BalancerState
from dial.watchdog import Watchdog, watch

from .leases import START, balancer

LATE = Moment("a boot", 1010.5)


class Balancer:
    """Weights in a dictionary."""

    def __init__(self, **weights: int) -> None:
        self.weights = weights
        self.trouble: Exception | None = None
        self.deaf: set[str] = set()
        self.closed = False
        self.reads = 0
        self.writes: list[dict[str, int]] = []

    async def read(self) -> BalancerState:
        self.reads += 1
        if self.trouble:
            raise self.trouble
        return balancer(**self.weights)

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        assert version > len(self.writes)  # or the adapter would call it stale
        self.writes.append(dict(weights))
        taken = {name: w for name, w in weights.items() if name not in self.deaf}
        self.weights |= taken
        failures = tuple((name, "deaf") for name in weights if name in self.deaf)
        return ApplyReport(version, 0.0, tuple(weights.items()), tuple(taken.items()), failures)

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def file(tmp_path: Path) -> LeaseFile:
    file = LeaseFile(tmp_path / "app.lease", "app")
    file.write(Lease("app", {"s1": (26,), "s2": (115,)}, START, 10.0, 4711))
    return file


async def test_an_expired_lease_leads_to_the_configured_weights_and_ends(file: LeaseFile) -> None:
    there = Balancer(s1=26, s2=115)
    with capture_logs() as logs:
        await Watchdog(file, there, lambda: LATE).look()
    assert there.weights == {"s1": 100, "s2": 100}
    assert there.closed
    assert file.read() is None
    assert [(line["log_level"], line["pid"], line["silent_s"]) for line in logs] == [
        ("warning", 4711, 10.5)
    ]


async def test_a_lease_that_is_renewed_needs_no_look_at_the_balancer(file: LeaseFile) -> None:
    there = Balancer(s1=26, s2=115)
    await Watchdog(file, there, lambda: START).look()
    assert (there.reads, there.writes) == (0, [])


async def test_without_a_lease_nothing_is_done(file: LeaseFile) -> None:
    file.remove()
    there = Balancer(s1=26, s2=115)
    await Watchdog(file, there, lambda: LATE).look()
    assert (there.reads, there.writes) == (0, [])


async def test_a_weight_that_the_admin_set_meanwhile_stays(file: LeaseFile) -> None:
    there = Balancer(s1=70, s2=115)
    await Watchdog(file, there, lambda: LATE).look()
    assert there.weights == {"s1": 70, "s2": 100}
    assert file.read() is None


async def test_a_balancer_that_was_restarted_has_nothing_of_ours(file: LeaseFile) -> None:
    there = Balancer()
    await Watchdog(file, there, lambda: LATE).look()
    assert there.writes == []
    assert file.read() is None


async def test_a_controller_that_comes_back_during_the_look_keeps_its_weights(
    file: LeaseFile,
) -> None:
    class ComesBack(Balancer):
        async def read(self) -> BalancerState:
            file.write(Lease("app", {"s1": (26,)}, LATE, 10.0, 4712))
            return await super().read()

    there = ComesBack(s1=26, s2=115)
    await Watchdog(file, there, lambda: LATE).look()
    assert there.writes == []
    assert file.read().pid == 4712


async def test_trouble_is_said_once_and_the_next_look_tries_again(file: LeaseFile) -> None:
    there = Balancer(s1=26, s2=115)
    there.trouble = BalancerUnreachable("socket: nobody answers")
    watchdog = Watchdog(file, there, lambda: LATE)
    with capture_logs() as logs:
        await watchdog.look()
        await watchdog.look()
    assert [line["error"] for line in logs] == ["socket: nobody answers"]
    there.trouble = None
    await watchdog.look()
    assert there.weights == {"s1": 100, "s2": 100}


async def test_a_weight_that_was_not_taken_is_tried_again(file: LeaseFile) -> None:
    there = Balancer(s1=26, s2=115)
    there.deaf = {"s1"}
    watchdog = Watchdog(file, there, lambda: LATE)
    await watchdog.look()
    assert there.weights == {"s1": 26, "s2": 100}
    assert file.read() is not None
    there.deaf.clear()
    await watchdog.look()
    assert there.weights == {"s1": 100, "s2": 100}
    assert there.writes == [{"s1": 100, "s2": 100}, {"s1": 100}]
    assert file.read() is None


async def test_a_file_that_is_no_lease_is_said_and_left_where_it_is(file: LeaseFile) -> None:
    file.path.write_text("{}")
    there = Balancer(s1=26)
    with capture_logs() as logs:
        await Watchdog(file, there, lambda: LATE).look()
    assert "not a lease" in logs[0]["error"]
    assert there.reads == 0
    assert file.path.exists()


async def test_it_stops_when_told(file: LeaseFile) -> None:
    stop = asyncio.Event()
    watching = asyncio.create_task(watch(Watchdog(file, Balancer(), lambda: START), stop))
    await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(watching, 5)
