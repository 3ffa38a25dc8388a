"""Iron at user level: quotas that pay for packets, five times a second.

Each period a group's account (:mod:`~dial.netcharge.iron`) is charged or credited with what its
own accounts do not show, and its quota for the next period is written; while it is in debt, its
packets are dropped at the device's ingress (:mod:`~dial.netcharge.ingress`).

Iron charges inside the scheduler, within the kernel's period.  Here the account of one period
shows in the next, so a burst costs others one period before it is paid for.  Writing a quota
lets the kernel's period begin anew; with ten of the kernel's to one of ours that is worth a
tenth at most, and what a group ran too long is taken off its next quota.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dial.agent.files import Unavailable
from dial.limits.knobs import Knob
from dial.limits.limiter import Limiter
from dial.netcharge.ingress import Ingress
from dial.netcharge.iron import Account, period
from dial.netcharge.softirq import Counts, Softirqs, charge_ns

PERIOD_S = 0.2
"""Twenty of the kernel's own, see above."""

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
        context_is_accounted: bool,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._groups = groups
        self._softirqs = softirqs
        self._ingress = ingress
        self._limiter = limiter
        self._accounted = context_is_accounted
        self._monotonic_s = monotonic_s
        self._accounts = {
            name: Account(rt_remain=group.quota_cores * PERIOD_S * _NS)
            for name, group in groups.items()
        }
        self._last: tuple[float, Counts, dict[str, int]] | None = None
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
        now_s, counts = self._monotonic_s(), self._softirqs.read()
        used = {name: self._used_ns(name) for name in self._groups}
        last, self._last = self._last, (now_s, counts, used)
        if last is None:
            return
        length_ns = (now_s - last[0]) * _NS
        for name, group in self._groups.items():
            self._accounts[name] = period(
                self._accounts[name],
                group.quota_cores * length_ns,
                max(0.0, used[name] - last[2][name]),
                charge_ns(last[1], counts, name, context_is_accounted=self._accounted),
            )
            self._put(name, max(0.0, self._accounts[name].rt_remain) / length_ns)
        if self._ingress is not None:
            self._ingress.close_for(
                name for name, account in self._accounts.items() if account.runtime < 0.0
            )

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

    def _used_ns(self, name: str) -> int:
        try:
            return self._groups[name].used_ns()
        except Unavailable:
            return 0
