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
        Argument of HAProxy's ``balance``.
    interval_s
        Tick of the controller that sets the weights; ``None`` without one.
    settings
        Further tables of the controller's configuration.
    mode
        Whether the controller writes its weights or only shows them.
    """

    name: str
    balance: str
    interval_s: float | None = None
    settings: str = ""
    mode: Mode = Mode.ENFORCE

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
        Policy("roundrobin", "roundrobin"),
        Policy("leastconn", "leastconn"),
        Policy("random2", "random(2)"),
        Policy("dial", "roundrobin", interval_s=1.0),
        Policy("dial-paper", "roundrobin", interval_s=10.0, settings=PAPER),
    )
}


def policy(name: str, interval_s: float | None = None) -> Policy:
    """Look a policy up; ``interval_s`` replaces its controller's own interval.

    Raises
    ------
    LabError
        If there is none of that name; lists those there are.
    """
    if name not in POLICIES:
        raise LabError(f"--policy {name}: no such policy; allowed: {', '.join(POLICIES)}")
    found = POLICIES[name]
    if interval_s is None or not found.controlled:
        return found
    return replace(found, interval_s=interval_s)
