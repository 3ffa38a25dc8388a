"""How the load is best split: from throughputs and arrival rate to shares and weights.

:mod:`dial.optimizer.lemma1`
    The paper's closed form, as printed.
:mod:`dial.optimizer.shares`
    The exact optimum: the same where Lemma 1 is right, and right where it is not.
:mod:`dial.optimizer.in_flight`
    Under least connections: who takes part at all.
:mod:`dial.optimizer.olap`
    Eq. 6: the same where only some workers hold a segment.
:mod:`dial.optimizer.weights`
    Shares to integer weights in the balancer's own meaning.
"""

from dial.optimizer.in_flight import in_flight_split
from dial.optimizer.lemma1 import lemma1
from dial.optimizer.olap import Placement, olap_shares, replica_weights
from dial.optimizer.shares import Split, proportional_shares, tail_optimal_shares
from dial.optimizer.weights import (
    LEAST_RATE,
    integer_weights,
    rate_units,
    rate_weights,
    shares_of_weights,
)

__all__ = [
    "LEAST_RATE",
    "Placement",
    "Split",
    "in_flight_split",
    "integer_weights",
    "lemma1",
    "olap_shares",
    "proportional_shares",
    "rate_units",
    "rate_weights",
    "replica_weights",
    "shares_of_weights",
    "tail_optimal_shares",
]
