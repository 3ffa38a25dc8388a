"""The policies that can be compared, by the names people type."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dial.errors import LabError
from dial.types import Mode


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
        Which rule of ``rivals.lua`` chooses in HAProxy instead of ``balance``; empty for none.
    """

    name: str
    balance: str
    lb_policy: str = ""
    interval_s: float | None = None
    settings: str = ""
    mode: Mode = Mode.ENFORCE
    rival: str = ""

    @property
    def controlled(self) -> bool:
        """Whether a controller sets the weights."""
        return self.interval_s is not None


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

POLICIES = {
    policy.name: policy
    for policy in (
        Policy("roundrobin", "roundrobin", "ROUND_ROBIN"),
        Policy("leastconn", "leastconn", ""),
        Policy("random2", "random(2)", ""),
        Policy("leastrequest", "", "LEAST_REQUEST"),
        Policy("dial", "leastconn", "ROUND_ROBIN", interval_s=1.0),
        Policy("dial-roundrobin", "roundrobin", "", interval_s=1.0),
        Policy("oracle", "roundrobin", rival="oracle"),
        Policy("peak-ewma", "roundrobin", rival="peak-ewma"),
        Policy("prequal", "roundrobin", rival="prequal"),
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
    found = there[name]
    if interval_s is None or not found.controlled:
        return found
    return replace(found, interval_s=interval_s)
