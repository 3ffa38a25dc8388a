"""Who seems to be slowed by a neighbour, and is not yet surely: taken last of idle backends.

Problem
    Where little is to do a few requests tell little.  A neighbour in the cache of one of three
    backends, at a quarter of their load, doubled T90 of 30 requests a second and made the CPU time
    of each 1.2 times what it was: what load is moved by was met after 14 s, or not in 15.  One that
    left half of a disk made T90 a tenth longer, and the wait for each byte a quarter: load was
    moved in 19 of 48 such blocks.  But at such a load most backends are idle, and which of the idle
    ones is taken costs nobody anything.

Formula
    Over the newest 2, 4 or 8 intervals T_x and the time of a request at the CPU, each beside the
    siblings' (:mod:`dial.controller.control_groups`), both say

        r_i >= b    and    r_i >= 1.5 s_i

    with b the least that load is moved for and s_i their errors: by chance in 4 of 1000
    comparisons, were they normal.  Or the time that somebody waits for the disk says it alone, and
    is surer:

        r >= b    and    r >= 3 s

    by chance in 1 of 1000: in 48 recorded blocks beside a neighbour on one disk of three, a quarter
    of the load, of no sibling, and of nobody before the neighbour came.  Such a backend is taken
    last for 20 ticks (:mod:`dial.controller.ties`), if the others can do without it, and after that
    as it comes, so that what is seen of it is new.

Regimes
    costs that vary much, or a controller that has just begun
        One heavy request shows by both, and what is usual is not known yet: nobody is doubted
        before costs are known to be alike (:attr:`dial.controller.noise.Noise.alike`).
    it was chance
        A tie is broken otherwise than it would have been; nothing is said of a neighbour.
    a job of the VM's own that makes small reads
        It looks like a neighbour on the disk, and is spared by T_x where load is to be moved.  Here
        it is taken last while it lasts: requests wait for that disk as well.
    much load
        Nothing is done: ties are rare, and what few requests say of a neighbour comes late.
    a strong neighbour
        Load is moved in that interval or the next, by what it is always moved by.
    it stays in doubt
        For 20 ticks of each 20 and as many as it takes to doubt it again it is taken last.

Source
    Own (decisions 64 and 71).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from dial.columns import Bools, Ints
from dial.controller.comparison import SURE_DEVIATIONS, Comparison
from dial.controller.control_groups import ControlGroups
from dial.controller.look import Looks
from dial.controller.policy import Policy
from dial.types import NoData

_INTERVALS = (2, 4, 8)
"""Of a neighbour that has just come, and of one that few requests show."""

_LIKELY = 1.5
"""Standard errors, of each of two, as each witness of one interval is asked for
(:mod:`dial.controller.agreement`).  In 28 recorded blocks of 15 s without a neighbour, three
backends each, nobody was in doubt; in six more at a quarter of the load two were."""

_TICKS = 20
"""As long as a backend that was always slower is taken as it comes in between."""


def in_doubt(
    policy: Policy,
    before: Mapping[str, int],
    looks: Looks,
    groups: ControlGroups,
    contended: Collection[str],
    *,
    tick: int,
) -> dict[str, int]:
    """Until which tick each backend in doubt is taken last.

    Parameters
    ----------
    policy : for the least that load is moved for.
    before : the same after the last tick.
    looks : the backends' interval.
    groups : their siblings.
    contended : names of those that load is moved away from, who are in no doubt.
    tick : its number.
    """
    if policy.strategies.detect == "band":
        return {}
    names, least = looks.seen.names, policy.guards.engage_rho_bg
    doubts = {n: until for n, until in before.items() if until > tick and n not in contended}
    slow = np.fmax(1.0 - 1.0 / looks.read.residence, looks.read.disk)
    slower_now = np.flatnonzero(slow >= least).tolist()
    asked = [row for row in slower_now if names[row] not in contended and names[row] not in doubts]
    if asked:
        slower = _seem_slower(groups, np.array(asked, np.int64), least)
        doubts |= dict.fromkeys((names[row] for row in slower), tick + _TICKS)
    return doubts


def _seem_slower(groups: ControlGroups, rows: Ints, least: float) -> set[int]:
    """Which of the backends in these rows two witnesses call slower, or the disk."""
    rows = rows[groups.noise.alike[rows]]
    over, rows = np.repeat(_INTERVALS, rows.size), np.tile(rows, len(_INTERVALS))
    by_disk = _say_slower(groups.by_disk_wait(rows, over), least, SURE_DEVIATIONS)
    by_t_x = _say_slower(groups.by_t_x(rows, over), least, _LIKELY)
    # Most are not: the second witness is asked of those that the first calls slower.
    slower, over = rows[by_t_x], over[by_t_x]
    at_cpu = _say_slower(groups.by_cpu_residence(slower, over), least, _LIKELY)
    return {*rows[by_disk].tolist(), *slower[at_cpu].tolist()}


def _say_slower(compared: Iterable[Comparison | NoData], least: float, deviations: float) -> Bools:
    """(k,) of which backends a witness says that they lose ``least``, by so many of its errors."""
    excesses = (None if isinstance(one, NoData) else one.excess for one in compared)
    says = [e is not None and e.mean >= max(least, deviations * e.sd) for e in excesses]
    return np.array(says, np.bool_)
