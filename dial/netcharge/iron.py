"""Iron's Algorithms 1 and 2: quotas that are charged for softirqs, as pure steps.

Problem
    CPU time of network processing is booked to whoever it interrupts.  A group with a quota gets
    its packets processed at the others' cost; a group that is interrupted pays for them.

Formula
    Of each group the kernel keeps ``runtime``, what it may still run in this period.  Iron adds
    ``gained``, what it has coming for work in its context that was others', and charges
    ``cpuusage``: its own network processing elsewhere, less that of others in its own context.
    The two algorithms are :func:`global_refill` (at a period's end) and :func:`local_refill`
    (when a core has used up its slice), line by line.

At user level
    There is one step a period of ours, :func:`period`.  The slice is twice the quota, and what
    the local pool then holds is the quota to write.

Regimes
    no network
        The quota is what was configured, and what was left of the last one.
    a flooded group
        Its quota falls by what its packets cost; what a period could not pay is owed in the
        next, up to ten of them.
    an interrupted group
        What it lost to others' packets is added to its next quota.

Source
    Khalid et al., NSDI 2018, 3.2, Algorithms 1 and 2.

Departures
    * A debt is at most :data:`MOST_DEBT_PERIODS` quotas.  Iron drops the packets of who is in
      debt before they cost anything, so that no debt grows; where that is not possible a burst
      must not stop a service for longer than two seconds.
    * Credit is at most one quota, for the same reason the other way round.
    * What is left of a quota is kept for the next period, up to one quota.  The scheduler knows
      who idled; accounts do not tell it from who was kept from running by somebody's packets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST_DEBT_PERIODS = 10
"""Of 200 ms: two seconds."""


@dataclass(frozen=True, slots=True)
class Account:
    """A group's CPU time, in any one unit.

    Attributes
    ----------
    runtime
        The global pool; negative while something is owed.
    gained
        Credit for others' packets, not yet used.
    rt_remain
        The local pool: what a core may run before it asks again; negative if it ran longer.
    """

    runtime: float = 0.0
    gained: float = 0.0
    rt_remain: float = 0.0


def global_refill(account: Account, quota: float, *, idled: bool) -> Account:
    """Return the account at a period's end (Algorithm 1).

    Parameters
    ----------
    account
        Before.
    quota
        The group's per period.
    idled
        Whether it left some of its allotment unused for want of work: what is not used cannot
        be saved.

    Examples
    --------
    Half a quota is owed, a tenth was gained:

    >>> global_refill(Account(runtime=-5.0, gained=1.0), 10.0, idled=False).runtime
    6.0
    """
    runtime, gained = account.runtime, account.gained
    if gained > 0:  # lines 1 to 4
        runtime, gained = runtime + gained, 0.0
    if idled and runtime > 0:  # lines 5 to 7
        runtime = 0.0
    return replace(account, runtime=quota + runtime, gained=gained)  # line 8


def local_refill(account: Account, cpuusage: float, slice_: float) -> Account:
    """Return the account when a core asks for time (Algorithm 2).

    Parameters
    ----------
    account
        Before.
    cpuusage
        To be charged (positive) for network processing that was not accounted, or credited.
    slice_
        What a core gets at a time.

    Examples
    --------
    Three units of packets are charged to a group that has ten:

    >>> local_refill(Account(runtime=10.0), 3.0, 10.0).rt_remain
    7.0
    """
    runtime, gained, rt_remain = account.runtime, account.gained, account.rt_remain
    amount = 0.0  # line 1
    min_amount = slice_ - rt_remain
    if cpuusage > 0:  # lines 3 to 9
        if cpuusage > gained:
            runtime, gained = runtime - (cpuusage - gained), 0.0
        else:
            gained -= cpuusage
    else:  # lines 10 to 12
        gained += abs(cpuusage)
    if runtime == 0 and gained > 0:  # lines 14 to 18
        runtime = min(min_amount, gained)
        gained -= runtime
    if runtime > 0:  # lines 19 to 22
        amount = min(runtime, min_amount)
        runtime -= amount
    return Account(runtime, gained, rt_remain + amount)  # line 23


def period(account: Account, quota: float, used: float, cpuusage: float) -> Account:
    """Return the account for the next period; its ``rt_remain`` is the quota to write.

    Parameters
    ----------
    account
        Of the last one.
    quota
        As configured, per period.
    used
        CPU time that the group's own accounts show for the last one.
    cpuusage
        To be charged or credited for it.

    Examples
    --------
    >>> quiet = period(Account(rt_remain=10.0), 10.0, used=10.0, cpuusage=0.0)
    >>> quiet.rt_remain
    10.0
    >>> flooded = period(quiet, 10.0, used=10.0, cpuusage=4.0)
    >>> flooded.rt_remain
    6.0
    """
    left = account.rt_remain - used
    kept = min(max(0.0, left), quota)
    account = Account(account.runtime, account.gained + kept, min(0.0, left))
    account = global_refill(account, quota, idled=False)
    # Twice the quota: what was gained is given with the quota, not after it.
    account = local_refill(account, cpuusage, 2.0 * quota)
    return replace(
        account,
        runtime=min(max(account.runtime, -MOST_DEBT_PERIODS * quota), quota),
        gained=min(account.gained, quota),
    )
