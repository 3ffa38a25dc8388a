"""Deferral from the statistics pages of an application.

What is counted between two readings of a page is the growth of T_e and T_d of each of its places,
whichever pBoxes had it, one after the other: a page keeps what those did that have ended.  (One
of version 1.0 does not.  There a pBox that is new in its place counts with all it did, for its
whole life lies in the interval, and of one that has ended the last part is lost.)  Of a place
that could not be read in one of them nothing counts.  An activity in progress counts as far as it
has come, so a wait of ten seconds shows in all ten.  A page that is seen for the first time counts
from then on.

A place where a pBox was found to be the *cause* of waiting in the interval (Algorithm 1 of the
paper, line 24: it held what a victim waited for) is left out.  The time for which a report holds a
table is not time in which requests do not wait; and when a balancer sends fewer of these, the
report would be most of all activity, and the more it blocks the less would seem to be blocked.
While hardly anybody else is active, nobody is there whom it could keep waiting: it stays left out
until the others together were active for as long as it in an interval, and it was not the cause.

A pBox does one thing at a time: in an interval it cannot have been active for longer than
that.  So no page, however damaged, can claim more than one activity's time for each of its
places.

Of a page that several processes write, one may have crashed while the others live; what it was
in the middle of would count as waiting for ever, so its places are left out
(:mod:`dial.pbox.writers`).
"""

from __future__ import annotations

import glob
import os
import pwd
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dial.agent.files import Tree, Unavailable, Vanished
from dial.errors import SettingError
from dial.pbox.deferral import FIELDS, Totals, nothing, signals
from dial.pbox.page import SHARED, Page, Slot, read_page
from dial.pbox.writers import Writers
from dial.types import Measured, Named

_MOST_PAGES = 64
"""Of one pattern that are believed: workers of one application, not all of a machine that went
wrong."""

_MOST_TOLD = 3
"""Pages that a message says what is wrong with."""

_MARGIN = 1.05
"""Of an interval: page and clock are not read at the same instant."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One page at an instant.

    Attributes
    ----------
    activities
        By place: whose figures these are (a psid; 0: of all who have had the place), T_e and T_d in
        nanoseconds, and how often one was found noisy.
    left_out
        Places that could not be read.
    waited_ns
        By key, waits in progress included, with the key's name.
    """

    activities: Mapping[int, tuple[int, int, int, int]]
    left_out: frozenset[int]
    waited_ns: Mapping[int, tuple[str, int]]


_NEW = (0, 0, 0, 0)

Identity = tuple[str, int, int]
"""Path, maker's process id and time of creation: a page made anew is another one."""

Readings = Mapping[Identity, Reading]


def owner_ids(users: Sequence[str]) -> frozenset[int]:
    """User ids of names or numbers; without any, our own.

    Raises
    ------
    SettingError
        If there is no such user.
    """
    ids = set()
    for user in users:
        try:
            ids.add(int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid)
        except KeyError:
            raise SettingError(f"--pbox-owner {user[:40]!r}: there is no such user") from None
    return frozenset(ids) or frozenset({os.geteuid()})


class ApplicationPages:
    """Deferral from the statistics pages whose paths match a pattern.

    Parameters
    ----------
    pattern
        A path, which may hold wildcards: programs put their process id into it.
    owners
        User ids whose pages are believed.
    tree
        Where processes are looked up.
    monotonic_ns
        The clock that pages are written by.
    """

    metrics = FIELDS

    def __init__(
        self,
        pattern: str,
        owners: Collection[int],
        tree: Tree,
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._pattern = pattern
        self._owners = frozenset(owners)
        self._writers: dict[Identity, Writers] = {}
        self._causes: dict[Identity, frozenset[int]] = {}
        self._tree = tree
        self._monotonic_ns = monotonic_ns

    def read(self) -> Readings:
        """Read the pages there are now that can be believed, 64 at most.

        Raises
        ------
        Unavailable
            If there is none; says of up to three what is wrong with them.
        """
        readings: dict[Identity, Reading] = {}
        writers: dict[Identity, Writers] = {}
        troubles = []
        for path in self._candidates():
            try:
                page = read_page(path, self._owners)
                identity = (path, page.header.pid, page.header.created_unix_ns)
                writers[identity] = self._writers.get(identity) or Writers(self._tree)
                readings[identity] = self._reading(path, page, writers[identity])
            except Vanished:
                continue
            except Unavailable as error:
                troubles.append(str(error))
            if len(readings) == _MOST_PAGES:
                break
        self._writers = writers
        if not readings:
            told = "; ".join(troubles[:_MOST_TOLD])
            raise Unavailable(told or f"{self._pattern}: no such page")
        return readings

    def rates(
        self, before: Readings, after: Readings, interval_s: float
    ) -> Mapping[str, Measured | Named]:
        """Return the fields of a sample."""
        known = before.keys() & after.keys()
        if not known:
            return nothing("the page is new: a rate needs two readings")
        growths = {each: Growth.between(before[each], after[each], interval_s) for each in known}
        self._causes = {
            each: growth.causes(self._causes.get(each, frozenset()))
            for each, growth in growths.items()
        }
        return signals(Totals(), total(growths[each].totals(self._causes[each]) for each in known))

    def _candidates(self) -> list[str]:
        """Paths to try.

        Anybody may put as many files there as he likes, under any names.  Those of users who are
        not believed come last, and of them as many as a message can tell of.
        """
        ours: list[str] = []
        others: list[str] = []
        for path in sorted(glob.glob(self._pattern)):  # noqa: PTH207 - absolute
            try:
                owner = os.lstat(path).st_uid
            except OSError:
                continue
            (ours if owner in self._owners else others).append(path)
        return ours + others[:_MOST_TOLD]

    def _reading(self, path: str, page: Page, writers: Writers) -> Reading:
        now_ns = self._monotonic_ns()
        slots = _of_the_living(path, page, writers)
        waiting_ns: dict[int, int] = defaultdict(int)
        for slot in slots.values():
            waiting_ns[slot.wait_key] += slot.waiting_ns(now_ns)
        return Reading(
            {i: _figures(slot, now_ns) for i, slot in slots.items()},
            page.left_out | (page.slots.keys() - slots.keys()),
            {
                key.key: (key.name, key.deferred_ns + waiting_ns[key.key])
                for key in page.keys
                if not key.not_counted
            },
        )


def _figures(slot: Slot, now_ns: int) -> tuple[int, int, int, int]:
    if slot.ended is None:
        return (slot.psid, *slot.times_ns(now_ns), slot.times_noisy)
    return (0, *slot.times_ns(now_ns), slot.ended.times_noisy + slot.times_noisy)


def _of_the_living(path: str, page: Page, writers: Writers) -> Mapping[int, Slot]:
    """Slots in use; of a page of one process all, for that it lives has been checked."""
    if not page.header.flags & SHARED:
        return page.slots
    try:
        alive = writers.alive(
            {(slot.pid, slot.start_ticks) for slot in page.slots.values() if slot.psid}
        )
    except Unavailable as error:
        raise Unavailable(f"{path}: {error}") from error
    return {
        i: slot
        for i, slot in page.slots.items()
        if not slot.psid or (slot.pid, slot.start_ticks) in alive  # a free place is nobody's
    }


@dataclass(frozen=True, slots=True)
class Growth:
    """What was added to one page in an interval.

    Attributes
    ----------
    active_ns, waited_ns
        T_e and T_d by place.
    found
        Places where a pBox was found to be the cause of waiting.
    waited_s
        By the name of what was waited for.

    Examples
    --------
    One pBox was active for all of a second and waited 0.4 s of it, for the key 7:

    >>> before = Reading({0: (1, 0, 0, 0)}, frozenset(), {7: ("log", 0)})
    >>> after = Reading({0: (1, 10**9, 4 * 10**8, 0)}, frozenset(), {7: ("log", 4 * 10**8)})
    >>> Growth.between(before, after, 1.0).totals(frozenset())
    Totals(active_s=1.0, deferred_s=0.4, deferred_by_resource_s={'log': 0.4})
    """

    active_ns: Mapping[int, float]
    waited_ns: Mapping[int, float]
    found: frozenset[int]
    waited_s: Mapping[str, float]

    @classmethod
    def between(cls, before: Reading, after: Reading, interval_s: float) -> Growth:
        """The growth from one reading of a page to another."""
        most_ns = _MARGIN * interval_s * 1e9
        active_ns: dict[int, float] = {}
        in_wait_ns: dict[int, float] = {}
        found = set()
        for index, (whose, executed_ns, waited_ns, noisy) in after.activities.items():
            was = before.activities.get(index, _NEW)
            _, was_executed_ns, was_waited_ns, was_noisy = was if was[0] == whose else _NEW
            if index in before.left_out:
                continue
            active_ns[index] = min(max(0, executed_ns - was_executed_ns), most_ns)
            in_wait_ns[index] = min(max(0, waited_ns - was_waited_ns), active_ns[index])
            if noisy > was_noisy:
                found.add(index)
        waited_s: dict[str, float] = defaultdict(float)
        for key, (name, waited_ns) in after.waited_ns.items():
            _, was_waited_ns = before.waited_ns.get(key, (name, 0))
            waited_s[name] += max(0, waited_ns - was_waited_ns) / 1e9
        return cls(active_ns, in_wait_ns, frozenset(found), dict(waited_s))

    def causes(self, before: frozenset[int]) -> frozenset[int]:
        """Places to leave out, of which some were left out of the interval before."""
        suspects = self.found | before
        others_ns = sum(ns for index, ns in self.active_ns.items() if index not in suspects)
        kept = {index for index in before if self.active_ns.get(index, 0.0) > others_ns}
        return self.found | kept

    def totals(self, causes: frozenset[int]) -> Totals:
        """The page's sums without these places."""
        counted = [index for index in self.active_ns if index not in causes]
        return Totals(
            sum(self.active_ns[index] for index in counted) / 1e9,
            sum(self.waited_ns[index] for index in counted) / 1e9,
            self.waited_s,
        )


def total(pages: Iterable[Totals]) -> Totals:
    """The sums over pages, of which several may name the same."""
    active_s = deferred_s = 0.0
    by_name: dict[str, float] = defaultdict(float)
    for page in pages:
        active_s += page.active_s
        deferred_s += page.deferred_s
        for name, waited_s in page.deferred_by_resource_s.items():
            by_name[name] += waited_s
    return Totals(active_s, deferred_s, dict(by_name))
