"""How far a mean time between rare events is known from a count of them."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import chi2


@dataclass(frozen=True, slots=True)
class MeanTime:
    """Mean time between events, in hours.

    Attributes
    ----------
    hours
        Time over events; the whole time where there was none, which it then is at least.
    low, high
        Exact 95 % interval of a Poisson process's mean time; ``high`` is ``None`` without events:
        nothing bounds it.
    """

    hours: float
    low: float
    high: float | None

    @classmethod
    def of(cls, hours: float, events: int) -> MeanTime:
        """From ``events`` in ``hours``.

        Source: Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28, 1936.
        """
        most = float(chi2.ppf(0.975, 2 * (events + 1))) / 2.0
        least = float(chi2.ppf(0.025, 2 * events)) / 2.0 if events else 0.0
        return cls(hours / max(1, events), hours / most, hours / least if events else None)
