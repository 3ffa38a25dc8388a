"""Whether a backend that is slow has a neighbour that load is to be moved away from.

The classifier names a cause; that its word is acted on needs more: the detector is sure, the
backend is surely slower than its siblings, and what the neighbour takes is worth moving load for.
Where the backend is so much slower that load is better elsewhere whatever the cause, load moves
before that is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dial.classifier import Symptom, own, symptom_of
from dial.controller.agreement import agreement, waits_without_doubt
from dial.controller.classify import shown_by_log
from dial.controller.comparison import SURE_ALONE_DEVIATIONS, Comparison
from dial.controller.finding import Finding, Why, in_words
from dial.controller.look import Look
from dial.controller.policy import Policy
from dial.controller.siblings import Siblings
from dial.controller.state import Contention, Release, Suspect
from dial.estimator import RhoBg
from dial.queueing import MM1, RHO_MAX
from dial.types import Cause, NoData

_LEAST_INTERVALS = 2

_AGREES_DEVIATIONS = 2.0
"""By how many standard errors each of two witnesses has to speak for it where the other is sure:
alone it would be chance in one of forty comparisons."""

_NOT_AGAIN_TICKS = 600
"""For so long after a release one interval is not enough: load that a job of each minute moves is
moved once in ten of them."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What speaks for a neighbour beside the interval itself.

    Attributes
    ----------
    likely, detected
        By the detector.
    before
        The last interval that was above its band, since all was calm.
    release
        Of the last neighbour.
    """

    likely: bool
    detected: bool
    before: Suspect | None
    release: Release | None


@dataclass(frozen=True, slots=True)
class _Case:
    """What is known of a backend that is suspected: as :func:`engage` has it, and beside T_x."""

    policy: Policy
    look: Look
    found: Finding
    suspicion: Suspicion
    siblings: Siblings
    beside: Comparison
    tick: int

    @property
    def least(self) -> float:
        """What load is moved for."""
        return self.policy.guards.engage_rho_bg

    def agreeing(self, other: RhoBg | NoData) -> RhoBg | None:
        """What another witness says, if T_x says it too, and one of the two is sure of it."""
        if isinstance(other, NoData):
            return None
        both = self.beside.excess, other
        agree = all(one.mean >= max(self.least, _AGREES_DEVIATIONS * one.sd) for one in both)
        sure = any(one.mean >= SURE_ALONE_DEVIATIONS * one.sd for one in both)
        return other if agree and sure else None

    def contention(self, found: Finding, rho_bg: RhoBg) -> Contention:
        """A neighbour that takes so much."""
        return _contention(self.policy, self.suspicion.release, found, rho_bg, tick=self.tick)


def engage(
    policy: Policy,
    look: Look,
    found: Finding,
    suspicion: Suspicion,
    siblings: Siblings,
    *,
    tick: int,
) -> tuple[Finding, Contention | None]:
    """Make a contention of a finding, if it is sure enough and worth moving load for.

    Sure enough: the detector says so, at half its threshold where the backend is far slower than
    its siblings, or where the balancer's choice says the same; and the class is that of the
    suspicious interval before too, by something newer (of the log: that is clear) or by a witness
    that is sure, or one that is measured inside the VM.  What is expected is exceeded by chance or
    by load of one's own as well, and then the class is whatever the noise of that interval looks
    like; it rarely looks the same twice.  One interval is enough where all that can tell of it says
    the same, or CPU or disk are waited for so much that there is no doubt of it
    (:mod:`dial.controller.agreement`), but not for what may have come back.

    Worth it: rho_bg is large enough, and the backend is surely slower than its siblings by as
    much.  Where all are slow alike there is nobody to move load to, and no neighbour either:
    neighbours do not arrive on all hosts at once.  It is the service's own load then: more of
    it, heavier requests, or something slow that all depend on.

    Parameters
    ----------
    policy : the strategies.
    look : the backend's interval.
    found : what the classifier makes of it.
    suspicion : what else is held of it.
    siblings : what its siblings suffer.
    tick : its number.
    """
    beside = siblings.by_t_x(look.row)
    if isinstance(beside, NoData):
        # Nothing to compare it with, so no load moves; that it is slow is no less true.
        told = found.cause is Cause.UNKNOWN or found.cause.is_own_doing
        cause = found.cause if suspicion.detected and told else Cause.NONE
        return _without_load_moved(found, cause, beside.reason), None
    case = _Case(policy, look, found, suspicion, siblings, beside, tick)
    finding, contention = _by_and_by(case)
    if contention is None:
        finding, contention = _at_once(case) or (finding, None)
    return finding, contention


def _at_once(case: _Case) -> tuple[Finding, Contention] | None:
    """What one interval is enough for, if it is."""
    found = case.found
    if _was_here(case.suspicion.release, _NOT_AGAIN_TICKS, case.tick):
        return None
    if isinstance(found.rho_bg, NoData) or found.rho_bg.value < case.least:
        return None
    agreed = agreement(case.policy, case.look, found, case.beside, case.siblings)
    if agreed is None:
        return None
    rho_bg = RhoBg(agreed.rho_bg.mean, max(agreed.rho_bg.sd, found.rho_bg.sd))
    found = replace(found, rho_bg=rho_bg, why=(*found.why, str(agreed)))
    return found, case.contention(found, rho_bg)


def _by_and_by(case: _Case) -> tuple[Finding, Contention | None]:
    """What takes the evidence of several intervals."""
    found, beside, least = case.found, case.beside, case.least
    agrees = case.agreeing(case.siblings.by_rate(case.look.row))
    far = _far_slower(case, agrees)
    by_resource = case.siblings.by_resource(case.look.row, found.cause)
    # Its class agrees where CPU or disk are accused; what the cache is accused by makes that class.
    surely = by_resource is not None and by_resource.exceeds(least, alone=found.cause is Cause.LLC)
    resource_agrees = by_resource is not None and _resource_agrees(case, by_resource, surely=surely)
    # What is measured inside the VM need not look the same twice.
    settled = found.cause.is_own_doing or _looks_the_same(case, surely=surely)
    # Of one interval alone T_x and its siblings' say next to nothing, however far apart they are.
    sure = case.suspicion.detected or (
        case.suspicion.likely
        and beside.intervals >= _LEAST_INTERVALS
        and (far or (settled and (resource_agrees or agrees is not None)))
    )
    # Its own witness may need another interval to be sure of the cache; nothing speaks against it.
    doubted = (
        found.cause is Cause.LLC
        and by_resource is not None
        and not (resource_agrees or by_resource.exceeds(least))
    )
    if sure and far and (doubted or not settled):
        # Far slower than its siblings: load leaves it, whatever the cause.
        blind = _far_slower_finding(case, agrees)
        return blind, case.contention(blind, beside.excess)
    if not sure or not found.cause.costs_capacity:
        return _unless_as_slow(found, beside, least) if sure else by_chance(found), None
    witness = case.siblings.by_cpu_time(case.look.row) if found.cause is Cause.LLC else beside
    if isinstance(witness, NoData):
        return Finding(Cause.NONE, found.rho_bg, (*found.why, witness.reason)), None
    cause = Cause.NONE
    if not settled:
        why_not = f"looks like {found.cause}, which the interval before did not"
    elif isinstance(found.rho_bg, NoData):
        why_not = f"looks like {found.cause}, but rho_bg is unknown: {found.rho_bg.reason}"
    elif found.rho_bg.value < least:
        why_not = f"looks like {found.cause}, but rho_bg {found.rho_bg.value:.2f} < {least:g}"
    elif resource_agrees or (
        (far or beside.exceeds(least, _scale(case)))
        and (witness is beside or witness.exceeds(least))
    ):
        return found, case.contention(found, found.rho_bg)
    elif witness.shared:
        # What all wait for, such as a row of one database, needs no neighbour and no load.
        cause = found.cause if found.cause.is_own_doing else Cause.LOAD
        why_not = f"looks like {found.cause}, but its siblings are as slow"
    else:
        why_not = f"looks like {found.cause}, but it is not sure to be slower than its siblings"
    return _without_load_moved(found, cause, why_not), None


def _looks_the_same(case: _Case, *, surely: bool) -> bool:
    """Whether the class is the one before, and not by the same noise.

    The log of half an interval is new; an agent's sample may still be the one that spoke before.
    Where that is ``surely`` no noise, for the resource gives less than it did and than the
    siblings', the next one need not be waited for.  What the log alone says has to be clear, or a
    neighbour on the CPU is named for the network, if the sample has not seen it yet.
    """
    cause, before = case.found.cause, case.suspicion.before
    if before is None or cause is not before.cause or cause is Cause.UNKNOWN:
        return False
    shown = shown_by_log(case.policy, case.look)
    # The cache's evidence is the sample's, whatever it shows by.
    by_log = shown is not None and shown.is_clear and cause is not Cause.LLC
    return surely or by_log or before.before(case.look.sample_at_s) is not None


def by_chance(found: Finding, alone: NoData | None = None) -> Finding:
    """What is held of a backend that is slower than expected, and may be so by chance.

    Parameters
    ----------
    found : what the classifier makes of it.
    alone : why it cannot be compared with its siblings, if it cannot.
    """
    if alone is not None:
        return _without_load_moved(found, Cause.NONE, alone.reason)
    if not found.cause.costs_capacity:
        return Finding(Cause.NONE, found.rho_bg, found.why)
    why_not = f"looks like {found.cause}; so far that is not enough"
    return _without_load_moved(found, Cause.NONE, why_not)


def _unless_as_slow(found: Finding, beside: Comparison, least: float) -> Finding:
    """A backend is slow and nobody knows why, unless its siblings are as slow.

    While load is shifted, or kept where it is, nothing is learnt, and what is usual may be another
    than it was: that is no reason to call one backend slow for as long as it lasts.
    """
    if found.cause is not Cause.UNKNOWN or beside.excess.mean >= least:
        return found
    why_not = "the cause is unknown, but it is hardly slower than its siblings"
    return _without_load_moved(found, Cause.NONE, why_not)


def _without_load_moved(found: Finding, cause: Cause, why_not: str) -> Finding:
    """What is held of a suspicion that is not acted on."""
    rho_bg = found.rho_bg
    if found.cause.is_own_doing and not cause.is_own_doing:
        rho_bg = NoData(f"no neighbour: it looks like {found.cause}")
    return Finding(cause, rho_bg, (*found.why, why_not))


def asked(policy: Policy, look: Look, release: Release | None, *, tick: int) -> Contention | None:
    """What a VM that cannot meet its own services' targets asks for, whatever its T_x is."""
    part = look.asked
    if part <= 0.0:
        return None
    symptom = Symptom(own.ASKED, own.ASKED_A_MINUTE).step(look.features)
    why = ("its services miss their targets whatever is moved among them",)
    found = Finding(Cause.OWN_SERVICES, RhoBg(part, 0.0), why, symptom)
    return _contention(policy, release, found, RhoBg(part, 0.0), tick=tick)


def _resource_agrees(case: _Case, by_resource: Comparison, *, surely: bool) -> bool:
    """Whether the resource gives less than its siblings' too, ``surely`` so or together with T_x.

    The two witnesses are of different things, so that each need not be as sure as T_x alone.  Where
    it is waited for, or surely makes requests dearer, they take that much longer, if it is they
    that wait: T_x has but to say so, or beside a wait that leaves no doubt not to speak against it.
    """
    if case.found.cause is Cause.LLC and case.agreeing(by_resource.excess) is not None:
        return True
    by_t_x = case.beside.excess
    if surely and by_t_x.mean >= max(case.least, by_t_x.sd):
        return True
    return waits_without_doubt(case.policy, case.found, case.beside, by_resource)


def _far_slower(case: _Case, agrees: RhoBg | None) -> bool:
    """Whether it is far slower: by either of two witnesses that agree, or surely by T_x alone."""
    blind, beside = case.policy.guards.blind_rho_bg, case.beside
    by_either = agrees is not None and max(beside.excess.mean, agrees.mean) >= blind
    return by_either or beside.exceeds(blind, alone=True)


def _far_slower_finding(case: _Case, agrees: RhoBg | None) -> Finding:
    """What is held of a backend so slow that load leaves it: a clear cause, or none as yet.

    With the load the symptoms go, so that a cause that is not named now may never be.  That of the
    cache is never clear: neighbours on the CPU, and load of one's own, make requests dearer too.
    """
    found, excess = case.found, case.beside.excess
    shown = symptom_of(case.policy.tree, case.look.features)
    hardware = found.cause.costs_capacity and found.cause is not Cause.LLC
    if hardware and shown is not None and shown.is_clear:
        slower = "far slower than its siblings: load moves at once"
        return Finding(
            found.cause, excess, (*found.why, *_given_less(agrees), slower), found.symptom
        )
    slower = "far slower than its siblings: load moves before the cause is known"
    return Finding(Cause.UNKNOWN, excess, (*found.why, *_given_less(agrees), slower))


def _given_less(agrees: RhoBg | None) -> Why:
    if agrees is None:
        return ()
    return (f"the balancer gives it {1.0 - agrees.mean:.2f} of what it usually gives it",)


def _was_here(release: Release | None, ticks: int, tick: int) -> bool:
    """Whether the last neighbour has gone so lately that this may be the same one."""
    return release is not None and tick - release.tick <= ticks


def _contention(
    policy: Policy, release: Release | None, found: Finding, rho_bg: RhoBg, *, tick: int
) -> Contention:
    returns = 0
    if release is not None and _was_here(release, policy.guards.return_ticks, tick):
        returns = release.returns + 1
    return Contention(
        found.cause,
        rho_bg,
        in_use=rho_bg.value,
        gone=0.0,
        since_tick=tick,
        read_tick=tick,
        returns=returns,
        evidence=in_words(found.why),
        symptom=found.symptom,
    )


def _scale(case: _Case) -> float:
    """What the excess by M/M/1's curve has to be multiplied with on the curve of the cause."""
    rho_fg, excess = case.look.rho_fg, case.beside.excess.mean
    shape = case.policy.shapes.get(case.found.cause, MM1)
    plain, shaped = case.look.curve(), case.look.curve(shape)
    if isinstance(plain, NoData) or isinstance(shaped, NoData) or isinstance(rho_fg, NoData):
        return 1.0
    if excess <= 0.0:
        return 1.0

    def by_shape(rho: float) -> float:
        return float(shaped.utilisation(plain.t_x_ms(min(max(rho, 0.0), RHO_MAX))))

    # At its mean T_x, and at the one that it would have were it as slow as its siblings.
    slow = rho_fg + case.beside.own.mean
    return (by_shape(slow) - by_shape(slow - excess)) / excess
