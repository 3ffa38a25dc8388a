"""Iron at user level: quotas that pay for packets, five times a second.

Each period a group's account (:mod:`~dial.netcharge.iron`) is charged or credited with what its
own accounts do not show, and its quota for the next period is written.  Its packets are dropped at
the device's ingress (:mod:`~dial.netcharge.ingress`) while it is in debt, and until those whom they
interrupted have run for what they lost: that takes the core that packets would take.

Iron charges inside the scheduler, within the kernel's period.  Here the account of one period
shows in the next, so a burst costs others one period before it is paid for.  Writing a quota
lets the kernel's period begin anew; with ten of the kernel's to one of ours that is worth a
tenth at most, and what a group ran too long is taken off its next quota.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dial.agent.files import Unavailable
from dial.limits.knobs import Knob
from dial.limits.limiter import Limiter
from dial.netcharge.ingress import Ingress
from dial.netcharge.interrupts import Overhead
from dial.netcharge.iron import Account, period
from dial.netcharge.softirq import Counts, Softirqs, charge_ns

PERIOD_S = 0.2
"""Twenty of the kernel's own, see above."""

_LEAST_CREDIT = 0.05
"""Of a quota, that it is worth keeping packets away for."""

_NS = 1e9


@dataclass(frozen=True, slots=True)
class Charged:
    """One group whose quota pays for its packets.

    Attributes
    ----------
    quota_cores
        As configured.
    knob
        Its quota's.
    used_ns
        Its CPU time so far, by its own accounts.
    """

    quota_cores: float
    knob: Knob
    used_ns: Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Reading:
    """All counters at one moment."""

    at_s: float
    counts: Counts
    used_ns: Mapping[str, int]
    softirq_ns: tuple[int, ...]


class Enforcer:
    """Charges.

    Parameters
    ----------
    groups
        By name.
    softirqs
        Counts for the same.
    ingress
        Drops, if it is possible here.
    limiter
        Writes quotas, and remembers the configured ones.
    softirq_ns
        Time in interrupts and softirqs by CPU, as the kernel's ticks have it.
    context_is_accounted
        See :func:`dial.netcharge.collect.context_is_accounted`.
    monotonic_s
        A clock that never steps.
    """

    def __init__(
        self,
        groups: Mapping[str, Charged],
        softirqs: Softirqs,
        ingress: Ingress | None,
        limiter: Limiter,
        *,
        softirq_ns: Callable[[int], tuple[int, ...]],
        context_is_accounted: bool,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._groups = groups
        self._softirqs = softirqs
        self._ingress = ingress
        self._limiter = limiter
        self._softirq_ns = softirq_ns
        self._accounted = context_is_accounted
        self._monotonic_s = monotonic_s
        self._accounts = {
            name: Account(rt_remain=group.quota_cores * PERIOD_S * _NS)
            for name, group in groups.items()
        }
        self._last: _Reading | None = None
        self._overhead = Overhead()
        self._closed: set[str] = set()
        self._written: dict[str, float] = {}

    @property
    def accounts(self) -> Mapping[str, Account]:
        """Of each group, in ns."""
        return self._accounts

    def begin(self) -> None:
        """Read the counters for the first time; raises as :meth:`once`."""
        self.once()

    def once(self) -> None:
        """Charge for the time since the last call.

        Raises
        ------
        LimitError
            If a quota cannot be written.
        BpfError
            If a counter cannot be read.
        """
        last, self._last = self._last, self._read()
        if last is None:
            return
        now = self._last
        self._overhead = self._overhead.learn(
            _added(last.softirq_ns, now.softirq_ns),
            _added(last.counts.timed_ns, now.counts.timed_ns),
            _added(last.counts.runs, now.counts.runs),
        )
        length_ns = (now.at_s - last.at_s) * _NS
        causing, unpaid = set(self._closed), False
        for name, group in self._groups.items():
            charge = charge_ns(
                last.counts,
                now.counts,
                name,
                context_is_accounted=self._accounted,
                per_run_ns=self._overhead.per_run_ns(),
            )
            used = max(0.0, now.used_ns[name] - last.used_ns[name])
            quota = group.quota_cores * length_ns
            # Who leaves half of what it may run unused has no use for more.
            wants = used >= 0.5 * self._accounts[name].rt_remain
            account = self._accounts[name] = period(self._accounts[name], quota, used, charge)
            unpaid |= wants and account.rt_remain + account.gained > (1.0 + _LEAST_CREDIT) * quota
            if charge > 0.0:
                causing.add(name)
            self._put(name, max(0.0, self._accounts[name].rt_remain) / length_ns)
        if self._ingress is not None:
            indebted = {name for name, account in self._accounts.items() if account.runtime < 0.0}
            self._closed = indebted | (causing if unpaid else set())
            self._ingress.close_for(self._closed)

    def put_back(self) -> None:
        """Put the configured quotas back, and drop nothing any more."""
        self._limiter.put_back()
        self._softirqs.close()
        if self._ingress is not None:
            self._ingress.close()

    def _put(self, name: str, cores: float) -> None:
        group = self._groups[name]
        # A difference that the kernel would not notice is not worth a new period.
        if abs(self._written.get(name, group.quota_cores) - cores) < 0.01 * cores:
            return
        if self._limiter.set(group.knob, cores):
            self._written[name] = cores
        else:
            self._written.pop(name, None)  # the group has gone; it may come back

    def _read(self) -> _Reading:
        counts = self._softirqs.read()
        used_ns = {name: self._used_ns(name) for name in self._groups}
        ticks_ns = self._softirq_ns(len(counts.runs))
        return _Reading(self._monotonic_s(), counts, used_ns, ticks_ns)

    def _used_ns(self, name: str) -> int:
        try:
            return self._groups[name].used_ns()
        except Unavailable:
            return 0


def _added(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    return tuple(now - past for past, now in zip(before, after, strict=True))
