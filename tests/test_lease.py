"""The lease: which weights are ours, until when, and who may write."""

from __future__ import annotations

import multiprocessing
import os
import re
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.errors import DialError, SettingError
from dial.lease import Lease, LeaseFile, LeaseHolder, Moment

from .leases import NAMES, START, balancer


def lease(**weights: tuple[int, ...]) -> Lease:
    return Lease("app", weights, START, 10.0, 4711)


@pytest.fixture
def file(tmp_path: Path) -> LeaseFile:
    return LeaseFile(tmp_path / "app.lease", "app")


class Clock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> Moment:
        return self.at

    def advance(self, passed_s: float) -> None:
        self.at = Moment(self.at.boot, self.at.since_boot_s + passed_s)


# ---------------------------------------------------------------- time


def test_the_age_is_the_time_since_within_one_boot() -> None:
    assert START.age_s(Moment("a boot", 1012.5)) == 12.5


@pytest.mark.parametrize("now", [Moment("another boot", 1012.5), Moment("a boot", 999.0)])
def test_what_another_boot_has_left_is_older_than_anything(now: Moment) -> None:
    assert START.age_s(now) == float("inf")
    assert lease().expired(now)


def test_a_lease_expires_after_its_time_and_not_at_it() -> None:
    assert not lease().expired(Moment("a boot", 1010.0))
    assert lease().expired(Moment("a boot", 1010.1))


def test_the_clock_is_the_kernels_and_does_not_follow_the_wall_clock() -> None:
    before = Moment.now()
    assert before.since_boot_s == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=5.0)
    assert 0.0 <= before.age_s(Moment.now()) < 5.0


# ---------------------------------------------------------------- what is put back


def test_only_a_weight_that_the_lease_names_is_put_back() -> None:
    found = lease(s1=(26,), s2=(128,)).to_put_back(balancer(s1=26, s2=90, s3=7))
    assert found == {"s1": 100}  # s2 is the admin's 90 by now, s3 never was ours


def test_where_nobody_else_can_write_weights_all_that_differ_are_put_back() -> None:
    state = balancer(s2=90, s3=7)
    state = replace(state, meaning=replace(state.meaning, sole_writer=True))
    assert lease(s3=(7,)).to_put_back(state) == {"s2": 100, "s3": 50}


def test_of_a_weight_that_was_being_written_either_is_put_back() -> None:
    of_two = lease(s1=(26, 40))
    assert of_two.to_put_back(balancer(s1=26)) == {"s1": 100}
    assert of_two.to_put_back(balancer(s1=40)) == {"s1": 100}
    assert of_two.to_put_back(balancer(s1=33)) == {}


def test_what_is_put_back_to_is_what_the_balancer_has_configured_now() -> None:
    state = balancer(s3=7)  # since the lease was written, haproxy.cfg changed to 50
    assert lease(s3=(7,)).to_put_back(state) == {"s3": 50}


weight = st.integers(0, 256)


@given(
    ours=st.dictionaries(st.sampled_from(NAMES), st.lists(weight, max_size=2).map(tuple)),
    in_force=st.dictionaries(st.sampled_from(NAMES), weight),
)
def test_a_weight_that_is_not_ours_is_never_touched(
    ours: dict[str, tuple[int, ...]], in_force: dict[str, int]
) -> None:
    state = balancer(**in_force)
    found = lease(**ours).to_put_back(state)
    for server in state.servers:
        if server.weight not in ours.get(server.name, ()):
            assert server.name not in found
        else:
            # And what is ours is always put back: nobody else would.
            wanted = found.get(server.name, server.weight)
            assert wanted == server.configured_weight


# ---------------------------------------------------------------- the holder


def test_a_lease_is_written_before_its_weights_and_names_old_and_new(file: LeaseFile) -> None:
    holder = LeaseHolder("app", 10.0, file, Clock())
    holder.renew(balancer(), {"s1": 26, "s2": 115, "s3": 50})
    assert file.read() == Lease("app", {"s1": (26,), "s2": (115,)}, START, 10.0, os.getpid())
    holder.renew(balancer(s1=26, s2=115), {"s1": 40, "s2": 115})
    assert file.read().weights == {"s1": (26, 40), "s2": (115,)}
    holder.renew(balancer(s1=40, s2=115), {"s1": 40, "s2": 115})
    assert file.read().weights == {"s1": (40,), "s2": (115,)}


def test_a_weight_that_the_admin_has_set_is_not_ours_any_more(file: LeaseFile) -> None:
    holder = LeaseHolder("app", 10.0, file, Clock())
    holder.renew(balancer(), {"s1": 26, "s2": 115})
    holder.renew(balancer(s1=70, s2=115), {"s2": 115})
    assert file.read().weights == {"s2": (115,)}


def test_the_lease_stays_until_the_last_weight_of_ours_is_put_back(file: LeaseFile) -> None:
    holder = LeaseHolder("app", 10.0, file, Clock())
    holder.renew(balancer(), {"s1": 26, "s2": 115})
    holder.renew(balancer(s1=26, s2=115), {})
    assert file.read().weights == {"s1": (26,), "s2": (115,)}
    assert holder.to_put_back(balancer(s1=26)) == {"s1": 100}
    holder.renew(balancer(s1=26), {})
    assert file.read().weights == {"s1": (26,)}
    holder.renew(balancer(), {})
    assert file.read() is None


def test_a_successor_knows_what_is_its_own(file: LeaseFile) -> None:
    LeaseHolder("app", 10.0, file, Clock()).renew(balancer(), {"s1": 26})
    successor = LeaseHolder("app", 10.0, file, Clock())
    assert successor.to_put_back(balancer(s1=26)) == {}
    successor.take_over()
    assert successor.to_put_back(balancer(s1=26)) == {"s1": 100}


def test_a_holder_lapses_when_it_does_not_renew_for_as_long_as_a_lease_lasts() -> None:
    clock = Clock()
    holder = LeaseHolder("app", 10.0, None, clock)
    clock.advance(10.0)
    assert not holder.lapsed
    holder.renew(balancer(), {"s1": 26})
    clock.advance(10.1)
    assert holder.lapsed
    holder.renew(balancer(), {})
    assert not holder.lapsed


# ---------------------------------------------------------------- the file


def test_a_lease_reads_back_as_written_and_only_its_owner_can_read_it(file: LeaseFile) -> None:
    assert file.read() is None
    written = lease(s1=(26, 40), s2=(115,))
    file.write(written)
    assert file.read() == written
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.remove()
    file.remove()
    assert file.read() is None
    assert list(file.path.parent.iterdir()) == []


def test_a_write_that_fails_leaves_what_was_there(file: LeaseFile, tmp_path: Path) -> None:
    file.write(lease(s1=(26,)))
    (tmp_path / "app.lease.new").mkdir()
    with pytest.raises(OSError, match=r"app\.lease\.new"):
        file.write(lease(s1=(40,)))
    assert file.read() == lease(s1=(26,))


@given(content=st.binary(max_size=300))
def test_whatever_is_no_lease_is_one_error_with_the_files_name(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("lease") / "app.lease"
    path.write_bytes(content)
    with pytest.raises(DialError, match=r"^lease .*app\.lease: not a lease: ") as caught:
        LeaseFile(path, "app").read()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("expires", ["NaN", "Infinity", "0", "-1"])
def test_a_lease_that_would_never_expire_or_has_no_time_is_no_lease(
    file: LeaseFile, expires: str
) -> None:
    file.write(lease(s1=(26,)))
    written = file.path.read_text()
    value = re.search(r'"expires_s":([0-9.]+)', written)
    assert value is not None
    file.path.write_text(written.replace(value.group(), f'"expires_s":{expires}'))
    with pytest.raises(DialError, match=r"not a lease: .*expires_s"):
        file.read()


def test_the_lease_of_another_service_is_refused(file: LeaseFile) -> None:
    file.write(lease(s1=(26,)))
    with pytest.raises(SettingError, match=r"holds the lease of service 'app'; service 'web'"):
        LeaseFile(file.path, "web").read()


# ---------------------------------------------------------------- one writer


def _hold(path: Path, held: object, done: object) -> None:
    with LeaseFile(path, "app").sole_writer():
        held.set()
        done.wait(30)


def test_a_second_writer_is_refused_by_file_and_process_until_the_first_is_killed(
    file: LeaseFile,
) -> None:
    spawn = multiprocessing.get_context("spawn")
    held, done = spawn.Event(), spawn.Event()
    first = spawn.Process(target=_hold, args=(file.path, held, done))
    first.start()
    assert held.wait(30)
    with pytest.raises(DialError) as caught, file.sole_writer():
        pass
    assert str(caught.value) == (
        f"lease {file.path}: process {first.pid} writes the weights of service 'app' already; "
        "one service has one controller"
    )
    first.kill()  # it cannot tidy up
    first.join()
    with file.sole_writer():
        assert file.beside("lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = LeaseFile(tmp_path / "nowhere" / "app.lease", "app")
    with (
        pytest.raises(DialError, match=r"cannot lock .*app\.lease\.lock: No such file"),
        file.sole_writer(),
    ):
        pass
