"""By how much a backend is slower than its siblings, and whether surely.

Problem
    A backend that is slower than its siblings may be that by chance, or because they all are.

Formula
    What a backend and its siblings suffer is the rho_bg that would make them as slow, with its
    standard error (:mod:`dial.controller.control_groups`); excess is by how much the backend's own
    is more, and sd the error of that.  With b the least that load is moved for, a backend is slower
    than its siblings by a neighbour worth mentioning when

        excess >= b    and    excess >= 3 sd,

    and 4 sd where nothing but this speaks for one: no class, no estimate on a resource's curve; or
    where something speaks against it: the siblings suffer half as much, or more.

    Load that was moved in error is found out by the same comparison: of eight intervals under a
    shift the siblings' means, which Eq. 1 corrects for the load that they carry, are half of the
    backend's estimate or more, and the excess is surely (by 1 sd) less than b.  Of each the lower
    of mean and median counts: all may be slow for a moment, beside a neighbour too, and the mean
    is that moment's.

    The apparent rho_bg is by M/M/1's curve, for which resource is not known yet; where it is, the
    excess is what the same T_x comes to on that resource's curve.

Source
    Own (decision 15).  Errors that are normal exceed 3 sd in 1 of 700 comparisons, 4 sd in 1 of
    30,000, and a comparison is asked for only in an interval that the detector finds slow.  (Of two
    the surer is beyond them up to half as often again, where the first interval was not slower.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dial.estimator import RhoBg

SURE_DEVIATIONS = 3.0
"""By how many standard errors a backend has to be slower than its siblings."""

SURE_ALONE_DEVIATIONS = 4.0
"""The same where no class is known that agrees, or the siblings suffer as well."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A backend beside its typical sibling, by one witness, over the same intervals.

    Attributes
    ----------
    own, siblings
        Means of both apparent rho_bg, with their standard errors.
    intervals
        Of its own since it last was calm, of which the witness says anything.
    """

    own: RhoBg
    siblings: RhoBg
    intervals: int = 0

    @property
    def excess(self) -> RhoBg:
        """By how much of a neighbour it is slower than its siblings."""
        mean = self.own.mean - max(0.0, self.siblings.mean)
        return RhoBg(mean, math.hypot(self.own.sd, self.siblings.sd))

    def beside(self, anyway: RhoBg) -> Comparison:
        """The same beside what siblings show over more intervals, where that is surer.

        What they all suffer at the moment counts none the less: the larger of the two does.
        """
        if anyway.sd >= self.siblings.sd:
            return self
        return replace(self, siblings=RhoBg(max(self.siblings.mean, anyway.mean), anyway.sd))

    @property
    def shared(self) -> bool:
        """Whether the siblings suffer half of what it suffers, or more."""
        return self.siblings.mean > 0.5 * self.own.mean

    def exceeds(self, least: float, scale: float = 1.0, *, alone: bool = False) -> bool:
        """Whether it is slower by ``least``, and surely slower.

        Parameters
        ----------
        least : rho_bg that is worth it.
        scale : what the excess is to be multiplied with on the curve of the resource at hand.
        alone : no class agrees that a neighbour is there.
        """
        excess = self.excess
        sure = SURE_ALONE_DEVIATIONS if alone or self.shared else SURE_DEVIATIONS
        return scale * excess.mean >= least and excess.mean >= sure * excess.sd

    def refutes(self, least: float) -> bool:
        """Whether the siblings suffer as well, and it surely is not slower by ``least``."""
        excess = self.excess
        return self.shared and excess.mean + excess.sd < least
