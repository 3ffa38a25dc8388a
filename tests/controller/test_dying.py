"""A controller that is killed, hangs or is started again: what becomes of its weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from dial.controller.replay import replay
from dial.errors import BalancerUnreachable, SettingError
from dial.lease import Lease, LeaseFile, Moment
from dial.types import Action, Mode

from .world import World

CONFIGURED = {"s1": 100, "s2": 100, "s3": 100}


@pytest.fixture
def make(service, tmp_path):
    """Build a controller, or its successor, with a lease."""

    def build(**settings) -> World:
        lease = {"path": tmp_path / "app.lease"} | settings.pop("lease", {})
        world = World(service, lease=lease, **settings)
        world.file = LeaseFile(tmp_path / "app.lease", "app")
        return world

    return build


async def test_weights_are_written_under_a_lease_and_a_clean_stop_ends_it(make):
    world = make()
    weights = await world.shift()
    lease = world.file.read()
    assert lease.expires_s == 10.0
    assert lease.renewed == world.now()
    assert lease.to_put_back(await world.balancer.read()) == {
        name: 100 for name, weight in weights.items() if weight != 100
    }
    await world.controller.end()
    assert world.service.weights == CONFIGURED
    assert world.file.read() is None


async def test_in_quiet_times_there_is_no_lease(make):
    world = make()
    await world.controller.begin()
    await world.pass_ticks(10)
    assert world.file.read() is None


async def test_shadow_mode_plans_and_leaves_no_file(make):
    world = make(mode=Mode.SHADOW)
    await world.controller.begin()
    await world.pass_ticks(10)
    world.service.rho_bg["s1"] = 0.6
    await world.pass_ticks(4)
    assert world.publisher.current.plan.changes
    assert world.file.read() is None
    assert not world.file.beside("state").exists()


async def test_the_lease_names_a_weight_before_it_is_written(make):
    world = make()
    apply, seen = world.balancer.apply, []

    async def look_first(weights, *, version):
        found = world.file.read()
        seen.append(all(weights[n] in (*found.weights.get(n, ()), 100) for n in weights))
        return await apply(weights, version=version)

    world.balancer.apply = look_first
    await world.shift()
    assert seen
    assert all(seen)


async def test_the_release_ends_the_lease(make):
    world = make()
    await world.shift()
    world.service.rho_bg.clear()
    await world.pass_ticks(30)
    assert world.service.weights == CONFIGURED
    assert world.file.read() is None


async def test_a_server_that_was_drained_through_the_release_gets_its_weight_back_too(make):
    world = make()
    weights = await world.shift()
    ours = next(name for name in ("s2", "s3") if weights[name] != 100)
    world.service.unusable.add(ours)
    world.service.rho_bg.clear()
    await world.pass_ticks(30)
    assert world.service.weights == CONFIGURED
    assert world.file.read() is None


# ---------------------------------------------------------------- started again


async def test_a_restarted_controller_goes_on_with_the_shift_that_is_in_force(make):
    weights = await (killed := make()).shift()
    successor = make()
    with capture_logs() as logs:
        await successor.controller.begin()
    assert any(line["event"] == "goes on from what was learnt" for line in logs)
    await successor.pass_ticks(3)
    assert successor.balancer.writes == []
    assert successor.service.weights == weights
    assert successor.publisher.current.plan.reason.startswith("load stays away from s1")
    assert successor.file.read().renewed == successor.now()
    # The quiet past is known: the neighbour goes, and nothing has to be learnt first.
    successor.service.rho_bg.clear()
    await successor.pass_ticks(30)
    assert successor.service.weights == CONFIGURED
    assert killed.file.read() is None


async def test_a_shift_whose_weights_are_newer_than_the_state_is_gone_on_with_by_the_lease(make):
    await (killed := make()).shift()
    state = killed.file.beside("state")
    older, weights = state.read_bytes(), dict(killed.service.weights)
    killed.service.rho_bg["s1"] = 0.9
    await killed.pass_ticks(3)
    newer = dict(killed.service.weights)
    assert newer["s1"] < weights["s1"]
    state.write_bytes(older)
    successor = make()
    await successor.controller.begin()
    await successor.pass_ticks(3)
    assert successor.publisher.current.plan.reason.startswith("load")
    assert successor.publisher.current.plan.action is not Action.YIELD
    # At most what the older state knows of the neighbour comes back, for a moment.
    assert all(written.get("s1", 0) <= weights["s1"] for written in successor.balancer.writes)
    assert successor.service.weights == newer


async def test_what_a_restarted_controller_records_replays(make, tmp_path):
    await make().shift()
    path = tmp_path / "r.jsonl"
    successor = make(record={"path": path})
    await successor.controller.begin()
    await successor.pass_ticks(5)
    await successor.controller.end()
    result = replay(path)
    assert (result.ticks, result.mismatches) == (5, ())


async def test_weights_that_were_put_back_are_not_written_again_without_evidence(make):
    await (killed := make()).shift()
    killed.service.weights |= CONFIGURED  # the watchdog
    killed.service.rho_bg.clear()
    successor = make()
    await successor.controller.begin()
    await successor.pass_ticks(5)
    assert successor.balancer.writes == []


async def test_but_a_neighbour_that_is_still_there_is_found_from_the_quiet_past(make):
    await (killed := make()).shift()
    killed.service.weights |= CONFIGURED
    successor = make()
    await successor.controller.begin()
    await successor.pass_ticks(4)  # fewer than the six that learning takes
    assert successor.publisher.current.plan.tick == killed.publisher.current.plan.tick + 4
    assert successor.service.weights["s1"] < 100


@pytest.mark.parametrize("how", ["missing", "damaged", "old", "other model", "other boot"])
async def test_without_what_was_learnt_the_orphaned_weights_are_put_back_at_once(make, how):
    await (killed := make()).shift()
    path = killed.file.beside("state")
    successor = make()
    if how == "missing":
        path.unlink()
    elif how == "damaged":
        path.write_bytes(path.read_bytes()[:-20])
    elif how == "old":
        successor.clock.advance(901.0)
    elif how == "other model":
        text = path.read_text()
        path.write_text(text.replace('"model_checksum":"', '"model_checksum":"f'))
    else:
        successor.boot = "second"
    with capture_logs() as logs:
        await successor.controller.begin()
    warned = [line for line in logs if line["log_level"] == "warning"]
    assert [line["event"] for line in warned] == ["learns anew"] * (how != "missing")
    assert successor.service.weights == CONFIGURED
    assert len(successor.balancer.writes) == 1
    assert set(successor.balancer.writes[0]) <= {"s1", "s2", "s3"}
    await successor.pass_ticks(1)
    assert successor.file.read() is None


async def test_a_weight_that_the_admin_set_meanwhile_is_left_to_him(make):
    await (killed := make()).shift()
    killed.file.beside("state").unlink()
    killed.service.weights["s1"] = 70
    successor = make()
    await successor.controller.begin()
    assert successor.service.weights == CONFIGURED | {"s1": 70}


async def test_a_damaged_lease_is_one_warning_and_no_reason_not_to_start(make):
    await (killed := make()).shift()
    killed.file.path.write_text("{")
    successor = make()
    with capture_logs() as logs:
        await successor.controller.begin()
    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert "app.lease: not a lease" in warning["error"]
    await successor.pass_ticks(2)
    assert successor.publisher.current.trouble is None


async def test_the_lease_of_another_service_is_a_reason_not_to_start(make):
    world = make()
    world.file.write(Lease("web", {"s1": (26,)}, Moment("first", 0.0), 10.0, 1))
    with pytest.raises(SettingError, match="holds the lease of service 'web'"):
        await world.controller.begin()


async def test_a_stop_that_cannot_reach_the_balancer_leaves_the_lease_to_the_watchdog(make):
    world = make()
    await world.shift()
    world.balancer.reachable = False
    await world.controller.end()
    assert world.file.read().weights["s1"]


# ---------------------------------------------------------------- stopped, and running again


async def test_a_hung_controller_that_runs_again_does_not_fight_on_with_its_old_weights(make):
    world = make()
    await world.shift()
    world.clock.advance(10.1)
    world.service.weights |= CONFIGURED  # the watchdog, meanwhile
    world.service.rho_bg.clear()
    world.balancer.writes.clear()
    await world.pass_ticks(1)
    assert "begins again: no tick was completed for the lease's 10 s" in (
        world.publisher.current.trouble
    )
    assert world.count("dial_lease_lapses_total") == 1
    await world.pass_ticks(5)
    assert world.publisher.current.trouble is None
    assert world.balancer.writes == []
    assert world.service.weights == CONFIGURED


async def test_it_finds_the_neighbour_again_if_that_is_still_there(make):
    world = make()
    await world.shift()
    world.clock.advance(10.1)
    world.service.weights |= CONFIGURED
    await world.pass_ticks(4)
    assert world.service.weights["s1"] < 100


async def test_weights_that_nobody_put_back_meanwhile_are_held_on_to(make):
    world = make()
    weights = await world.shift()
    world.clock.advance(60.0)
    await world.pass_ticks(1)
    assert world.service.weights == weights
    assert world.file.read().renewed == world.now()


async def test_a_controller_stopped_between_reading_and_writing_does_not_write(make):
    world = make()
    await world.controller.begin()
    await world.pass_ticks(10)
    world.service.rho_bg["s1"] = 0.6
    read = world.balancer.read

    async def stopped_afterwards():
        state = await read()
        # Seen as short of the limit when read, and past it when the plan is made.
        world.controller._holder._now = iter([world.now(), Moment("later", 0.0)]).__next__
        return state

    await world.pass_ticks(3)
    writes = len(world.balancer.writes)
    world.balancer.read = stopped_afterwards
    await world.pass_ticks(1)
    assert len(world.balancer.writes) == writes
    assert "plan not applied" in world.publisher.current.trouble


async def test_a_balancer_that_was_away_for_long_is_begun_with_anew(make):
    world = make()
    await world.shift()
    world.balancer.reachable = False
    await world.pass_ticks(6)
    world.balancer.reachable = True
    world.service.reload()
    world.service.rho_bg.clear()
    world.balancer.writes.clear()
    await world.pass_ticks(6)
    assert world.balancer.writes == []
    assert world.service.weights == CONFIGURED


async def test_what_was_recorded_on_both_sides_of_a_lapse_replays(make, tmp_path):
    path = tmp_path / "r.jsonl"
    world = make(record={"path": path})
    await world.shift()
    world.clock.advance(10.1)
    world.service.weights |= CONFIGURED
    await world.pass_ticks(6)
    await world.controller.end()
    for file, ticks in ((path, 5), (path.with_name("r.jsonl.1"), 14)):
        result = replay(file)
        assert (result.ticks, result.mismatches) == (ticks, ())


# ---------------------------------------------------------------- a disk that is full


async def test_without_a_lease_no_weights_are_in_force(make):
    world = make()
    await world.shift()
    world.file.path.unlink()
    world.file.path.mkdir()  # nothing can be put in its place
    await world.pass_ticks(1)
    assert world.service.weights == CONFIGURED
    assert world.publisher.current.trouble == "plan not applied: its lease cannot be written"
    assert world.count("dial_lease_failures_total") == 1
    await world.pass_ticks(4)
    assert world.service.weights == CONFIGURED
    assert dict(world.publisher.current.plan.changes)["s1"] < 100
    world.file.path.rmdir()
    await world.pass_ticks(1)
    assert world.service.weights["s1"] < 100
    assert world.publisher.current.trouble is None


async def test_a_balancer_that_is_away_at_the_start_costs_nothing_of_what_was_learnt(make):
    await (killed := make()).shift()
    learnt = killed.file.beside("state").read_bytes()
    successor = make()
    successor.balancer.reachable = False
    with pytest.raises(BalancerUnreachable):
        await successor.controller.begin()
    await successor.controller.end()
    assert killed.file.beside("state").read_bytes() == learnt
    assert killed.file.read().weights["s1"]


# ---------------------------------------------------------------- where nobody else writes weights


@pytest.fixture
def sole_writer(service):
    """A balancer that gets its weights from the controller alone, which has no lease."""
    service.meaning = replace(service.meaning, sole_writer=True)
    return service


@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.SHADOW])
async def test_a_shift_that_a_killed_controller_left_without_a_lease_is_put_back(sole_writer, mode):
    await World(sole_writer).shift()
    sole_writer.rho_bg.clear()
    successor = World(sole_writer, mode=mode)
    await successor.controller.begin()
    await successor.pass_ticks(2)
    assert sole_writer.weights == CONFIGURED
    assert successor.publisher.current.plan.action is Action.HOLD


@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.SHADOW])
async def test_a_weight_that_is_configured_anew_comes_into_force_with_the_next_controller(
    sole_writer, mode
):
    sole_writer.configured["s2"] = 50
    world = World(sole_writer, mode=mode)
    await world.controller.begin()
    await world.pass_ticks(2)
    assert sole_writer.weights == CONFIGURED | {"s2": 50}


async def test_shadow_mode_leaves_weights_alone_that_somebody_else_may_have_set(service):
    service.weights["s2"] = 50
    world = World(service, mode=Mode.SHADOW)
    await world.controller.begin()
    await world.pass_ticks(2)
    assert service.weights == CONFIGURED | {"s2": 50}
