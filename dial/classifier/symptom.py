"""The symptom that a cause was named by, followed on its own while load is shifted.

Problem
    With its load the symptoms of a backend fade although the neighbour stays: of a disk that it
    hardly uses any more T_x is as in quiet times, and half of the I/O pressure is gone.  So the
    tree, whose thresholds are for backends under load, cannot be asked whether the neighbour is
    still there.

Rule
    The symptom is the feature at the last threshold that was *exceeded* on the way to the leaf.
    It still shows while its mean over the last few intervals, begun anew after a gap, is nearer to
    that threshold than to its quiet value (1 of a ratio, else 0).

Source
    Own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dial.classifier.features import OF_THE_LOG
from dial.classifier.tree import Branch, Tree
from dial.types import Measured, NoData

_INTERVALS = 3
"""Of a second: I/O pressure beside a neighbour on the disk, with a tenth of the load, was 1.0 to
2.3 times the quiet one, and its mean over three seconds 1.2 and more in all but three of 25."""

_CLEARLY = 2.0
"""Times as far from the quiet value as the threshold.  Beside a neighbour in the data set the
intervals so far above were of the class they look like in 514 of 514 on the CPU, 741 of 741 on the
network and 245 of 245 on the disk."""

_MOST_UNSEEN = 10
"""Intervals without a value after which the last ones say nothing: the agent has died, or there are
no requests any more that it could be taken of."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """One feature since a neighbour was found.

    Attributes
    ----------
    feature
        Its name.
    threshold
        Of the tree.
    latest
        Values of the last intervals, one after the other, that had one.
    unseen_intervals
        Since the last of them.
    """

    feature: str
    threshold: float
    latest: tuple[float, ...] = ()
    unseen_intervals: int = 0

    @property
    def shows(self) -> bool:
        """Whether it still speaks for the neighbour; not known is no."""
        if not self.latest:
            return False
        mean = sum(self.latest) / len(self.latest)
        return mean >= 0.5 * (self._quiet + self.threshold)

    @property
    def is_of_the_log(self) -> bool:
        """Whether it is the balancer that shows it, and no agent."""
        return self.feature in OF_THE_LOG

    @property
    def is_clear(self) -> bool:
        """Whether its last value alone says which resource it is, where one surely is."""
        if not self.latest:
            return False
        return self.latest[-1] - self._quiet >= _CLEARLY * (self.threshold - self._quiet)

    @property
    def _quiet(self) -> float:
        return 1.0 if self.feature.endswith("_ratio") else 0.0

    def step(self, found: Mapping[str, Measured]) -> Symptom:
        """After one more interval."""
        value = found[self.feature]
        if isinstance(value, NoData):
            unseen = self.unseen_intervals + 1
            return replace(
                self, latest=self.latest if unseen < _MOST_UNSEEN else (), unseen_intervals=unseen
            )
        # What was before a gap says nothing of whether it still shows.
        before = self.latest if self.unseen_intervals == 0 else ()
        return replace(self, latest=(*before, value)[-_INTERVALS:], unseen_intervals=0)

    def anew(self) -> Symptom:
        """With nothing seen of it yet."""
        return Symptom(self.feature, self.threshold)


def symptom_of(tree: Tree, found: Mapping[str, Measured]) -> Symptom | None:
    """What an interval was classified by; ``None`` where no threshold was exceeded."""
    last: Symptom | None = None
    node = tree
    while isinstance(node, Branch):
        value = found[node.feature]
        known = not isinstance(value, NoData)
        above = node.missing == "above" if isinstance(value, NoData) else value >= node.threshold
        if known and above:
            last = Symptom(node.feature, node.threshold)
        node = node.above if above else node.below
    return last if last is None else last.step(found)
