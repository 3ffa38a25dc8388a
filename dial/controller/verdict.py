"""What is held of each backend, with the evidence a person would ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dial.classifier import own
from dial.columns import Floats
from dial.controller.classify import lost_by
from dial.controller.finding import Finding, in_words
from dial.controller.look import Look, Looks, used_part
from dial.controller.policy import Policy
from dial.detector import Signal
from dial.estimator import NO_PEAK, RhoBg, why_no_utilisation
from dial.rows import Rows
from dial.types import BackendPlan, Cause, Measured, NoData, Verdict

_NOT_SLOW = NoData("not slower than expected")
_NOTHING: tuple[Finding, Measured] = Finding(Cause.NONE, _NOT_SLOW), _NOT_SLOW
"""What is held of a backend that nobody had to look into."""


class Verdicts(Rows[Verdict]):
    """A verdict on each of n backends, made when it is asked for.

    Parameters
    ----------
    policy : the strategies.
    looks : all backends.
    signal : what the detector says of them.
    peak_rps : (n,) r_i; NaN where it is not known.
    judged : by row, what is held of those that were looked into.
    """

    def __init__(
        self,
        policy: Policy,
        looks: Looks,
        signal: Signal,
        peak_rps: Floats,
        judged: Mapping[int, tuple[Look, Finding]],
    ) -> None:
        self.peak_rps = peak_rps
        self._seen, self._rho_fg = looks.seen, looks.rho_fg
        self._expected_ms, self._learnt = signal.upper_ms, signal.learnt
        self._percentile, self._learn_intervals = policy.percentile, policy.learn_intervals
        # Looks are of the past that was learnt, too: kept is what the few need for words.
        self._found = {
            row: (finding, _taken_by_a_neighbour(policy, look, finding))
            for row, (look, finding) in judged.items()
        }

    @property
    def causes(self) -> dict[int, Cause]:
        """What is held of those that are anything but well, by row."""
        held = ((row, finding.cause) for row, (finding, _) in self._found.items())
        return {row: cause for row, cause in held if cause is not Cause.NONE}

    def cause(self, row: int) -> Cause:
        """What is held of one backend."""
        return self._found.get(row, _NOTHING)[0].cause

    def __len__(self) -> int:
        return len(self._seen)

    def row(self, row: int) -> Verdict:
        """Of the backend in a row, in words."""
        seen = self._seen[row]
        expected_ms = _or(self._expected_ms[row], self._nothing_expected(row))
        finding, rho_bg = self._found.get(row, _NOTHING)
        return Verdict(
            finding.cause,
            _or(self._rho_fg[row], why_no_utilisation(seen.sample)),
            rho_bg,
            _or(self.peak_rps[row], NO_PEAK),
            expected_ms,
            (_slow(f"T{self._percentile:g}", seen.window.t_x_ms, expected_ms), *_why(finding)),
        )

    def _nothing_expected(self, row: int) -> NoData:
        return NoData(f"{self._learnt[row]} of {self._learn_intervals} quiet intervals learnt")


class Planned(Rows[BackendPlan]):
    """What is wanted for each of n backends, made when it is asked for.

    Parameters
    ----------
    names : of them.
    verdicts : on them.
    shares, weights : (n,) as wanted.
    """

    def __init__(
        self, names: tuple[str, ...], verdicts: Verdicts, shares: Floats, weights: Sequence[int]
    ) -> None:
        self.names, self.causes = names, verdicts.causes
        self._verdicts, self._shares, self._weights = verdicts, shares, weights

    def __len__(self) -> int:
        return len(self.names)

    def row(self, row: int) -> BackendPlan:
        """Of the backend in a row."""
        verdict = self._verdicts.row(row)
        return BackendPlan(self.names[row], verdict, float(self._shares[row]), self._weights[row])


def _or(value: float, why_not: NoData) -> Measured:
    return why_not if math.isnan(value) else float(value)


def _taken_by_a_neighbour(policy: Policy, look: Look, finding: Finding) -> Measured:
    """rho_bg: what is lost, without what the tenant's own doing explains of it."""
    if isinstance(finding.rho_bg, NoData):
        return finding.rho_bg
    if finding.cause.is_own_doing:
        return _left_over(policy, look, finding)
    return finding.rho_bg.value


def _left_over(policy: Policy, look: Look, finding: Finding) -> Measured:
    """What the tenant's own doing leaves for a neighbour."""
    excess = look.features[own.FEATURES[finding.cause]]
    if finding.begins:
        return NoData("it began within this interval; requests and sample may differ in how much")
    if isinstance(excess, NoData):
        return excess
    if excess < own.least_excess(finding.cause, policy.guards.engage_rho_bg):
        return NoData(f"{own.ENDED[finding.cause]}, and T_x may be of requests from before")
    # Both of this interval: what was lost before says nothing of what is waited for now.
    lost = lost_by(policy, look, finding.cause)
    if isinstance(lost, NoData):
        return lost
    return own.left_over(finding.cause, lost.value, excess, used_part(look.seen))


def _slow(t_x: str, t_x_ms: Measured, expected_ms: Measured) -> str:
    """How slow it is, in words."""
    if isinstance(t_x_ms, NoData):
        return f"{t_x} unknown: {t_x_ms.reason}"
    if isinstance(expected_ms, NoData):
        return f"{t_x} {t_x_ms:.1f} ms; {expected_ms.reason}"
    return f"{t_x} {t_x_ms:.1f} ms, expected at most {expected_ms:.1f} at this load"


def _why(finding: Finding) -> tuple[str, ...]:
    """Why that, and what is lost."""
    why = [*in_words(finding.why)]
    if why and finding.cause.costs_capacity:
        why[0] = f"{finding.cause.upper()}: {why[0]}"
    if isinstance(finding.rho_bg, RhoBg) and finding.cause is not Cause.NONE:
        lost = "capacity lost" if finding.cause.is_own_doing else "rho_bg"
        why.append(f"{lost} {finding.rho_bg.value:.2f} +- {finding.rho_bg.sd:.2f}")
    return tuple(why)
