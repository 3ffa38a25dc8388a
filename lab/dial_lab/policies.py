"""The policies that can be compared, by the names people type."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dial.errors import LabError
from dial.types import Mode
from dial_lab.envoy import LOAD_REPORTS

LEARN_INTERVALS = 9
"""Quiet ticks a controller gets: six to learn its band, a few to show that it keeps still."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How requests are spread.

    Attributes
    ----------
    name
        As typed and reported.
    balance
        Argument of HAProxy's ``balance``; empty where it has nothing like it.
    lb_policy
        Envoy's ``lb_policy``; empty where it has nothing like it.
    interval_s
        Tick of the controller that sets the weights; ``None`` without one.
    settings
        Further tables of the controller's configuration.
    mode
        Whether the controller writes its weights or only shows them.
    rival
        Which rule under ``rivals/`` chooses in HAProxy instead of ``balance``, or sets its weights;
        empty for none.
    setting
        Of the rival, if it has one.
    candidates
        Settings of which the best is looked for before the first round.
    explores_s
        How long the rival, too, learns in quiet times, if it does; it remembers.
    lb
        What stands before the machines: one of :data:`BALANCERS`.
    memory_probe
        Whether agents probe memory, which no shipped model asks for.
    by_delay
        Whether HAProxy has the rules by which a request goes where it is to be served soonest.
    """

    name: str
    balance: str
    lb_policy: str = ""
    interval_s: float | None = None
    settings: str = ""
    mode: Mode = Mode.ENFORCE
    rival: str = ""
    setting: str = ""
    candidates: tuple[str, ...] = ()
    explores_s: float = 0.0
    lb: str = "haproxy"
    memory_probe: bool = False
    by_delay: bool = False

    @property
    def controlled(self) -> bool:
        """Whether a controller sets the weights."""
        return self.interval_s is not None

    @property
    def learns(self) -> bool:
        """Whether something is to be learnt in quiet times."""
        return self.learns_s > 0.0

    @property
    def learns_s(self) -> float:
        """Quiet time that it takes to learn."""
        return max(LEARN_INTERVALS * (self.interval_s or 0.0), self.explores_s)


PAPER = """\
[strategies]
detect = "band"
estimate = "interval"
split = "lemma1"
release = "t_x"

[guards]
floor_share = 0.0
max_step = 1.0
hysteresis = 0.0
blind_rho_bg = 1.0
return_ticks = 0
panic_fraction = 1.0
"""
"""The paper's rules as they are printed, without the guards that it does not have."""

ICE_THRESHOLDS = ("0.05", "0.1", "0.2", "0.3", "0.4")
"""CPU utilisation of a VM with a neighbour.  To a VM that has lost half, of three at half load,
Lemma 1 gives 0.17 of what it could serve alone; an even share is 0.42."""

PROPORTIONAL = """\
[strategies]
split = "proportional"
"""
"""Our inference, and the weights that one would try first."""

POLICIES = {
    policy.name: policy
    for policy in (
        Policy("roundrobin", "roundrobin", "ROUND_ROBIN"),
        Policy("leastconn", "leastconn", ""),
        Policy("random2", "random(2)", ""),
        Policy("leastrequest", "", "LEAST_REQUEST"),
        Policy("cswrr", "", LOAD_REPORTS),
        Policy("dial", "leastconn", "ROUND_ROBIN", interval_s=1.0, by_delay=True),
        Policy("expected-delay", "leastconn", by_delay=True),
        Policy("dial-leastconn", "leastconn", interval_s=1.0),
        Policy("dial-roundrobin", "roundrobin", "", interval_s=1.0),
        Policy("oracle", "roundrobin", rival="oracle"),
        Policy("peak-ewma", "roundrobin", rival="peak-ewma"),
        Policy("prequal", "roundrobin", rival="prequal"),
        Policy("knapsack", "roundrobin", rival="knapsack", explores_s=75.0),
        Policy("ice", "roundrobin", rival="ice", setting="0.2", candidates=ICE_THRESHOLDS),
        Policy("wrr-proportional", "roundrobin", interval_s=1.0, settings=PROPORTIONAL),
        Policy("wlc-proportional", "leastconn", interval_s=1.0, settings=PROPORTIONAL),
        Policy("dial-paper", "roundrobin", "ROUND_ROBIN", interval_s=10.0, settings=PAPER),
    )
}


BALANCERS = {"haproxy": "HAProxy", "envoy": "Envoy"}
"""What can stand before the machines, as typed and as called."""

DEFAULT_POLICIES = {
    "haproxy": ("roundrobin", "leastconn", "dial"),
    "envoy": ("roundrobin", "leastrequest", "dial"),
}


def of_balancer(lb: str) -> dict[str, Policy]:
    """The policies that a balancer has."""
    return {
        name: policy
        for name, policy in POLICIES.items()
        if (policy.lb_policy if lb == "envoy" else policy.balance)
    }


def policy(name: str, interval_s: float | None = None, lb: str = "haproxy") -> Policy:
    """Look a policy up; ``interval_s`` replaces its controller's own interval.

    Raises
    ------
    LabError
        If that balancer has none of that name; lists those there are.
    """
    there = of_balancer(lb)
    if name not in there:
        raise LabError(
            f"--policy {name}: no such policy of {BALANCERS[lb]}; allowed: {', '.join(there)}"
        )
    found = replace(there[name], lb=lb)
    if interval_s is None or not found.controlled:
        return found
    return replace(found, interval_s=interval_s)


def anywhere(name: str, interval_s: float | None = None) -> Policy:
    """The same of the first balancer that has it.

    Raises
    ------
    LabError
        If none has; lists those that the last one has.
    """
    first, *others = BALANCERS
    lb = next((lb for lb in (first, *others) if name in of_balancer(lb)), others[-1])
    return policy(name, interval_s, lb)
