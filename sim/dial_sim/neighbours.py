"""Neighbours that come for minutes, as in the paper (4.3): when, where, and how much they take.

A fleet's part ``contended`` has one at any time.  Each stays for an exponential time of mean
``stay_s`` and takes an even share between two bounds.  All is drawn before the simulation begins,
so that every policy meets the same neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Visit:
    """One neighbour at one server."""

    server: int
    from_s: float
    until_s: float
    rho_bg: float


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What is drawn from.

    Attributes
    ----------
    contended
        Part of the servers with a neighbour at any time, in the long run.
    stay_s
        Mean length of a visit.
    least, most
        Bounds of rho_bg.
    quiet_s
        Nobody comes before that: a controller learns.
    """

    contended: float = 0.05
    stay_s: float = 300.0
    least: float = 0.3
    most: float = 0.8
    quiet_s: float = 180.0

    def draw(self, servers: int, length_s: float, seed: int) -> list[Visit]:
        """All visits that begin within ``length_s``, in order; no server has two at a time."""
        random = np.random.default_rng((seed, 0x6E))
        visits = []
        away_s = self.stay_s * (1.0 - self.contended) / self.contended
        for server in range(servers):
            at_s = self.quiet_s + random.exponential(away_s)
            while at_s < length_s:
                until_s = at_s + random.exponential(self.stay_s)
                rho_bg = random.uniform(self.least, self.most)
                visits.append(Visit(server, at_s, until_s, rho_bg))
                at_s = until_s + random.exponential(away_s)
        return sorted(visits, key=lambda visit: visit.from_s)
