"""The tenant's own services in one VM, kept out of each other's way: PARTIES at user level.

Not every slow VM has a hidden neighbour; often its services disturb each other, and that the
tenant can mend on the spot.  This part of the agent is off unless asked for (``--partition``).

The way of a decision: :mod:`~dial.partition.latency` and :mod:`~dial.partition.groups` say how
each service does, :mod:`~dial.partition.parties` (with :mod:`~dial.partition.wheels` and
:mod:`~dial.partition.bandwidth`) decides what moves from whom to whom, pure, and
:mod:`~dial.partition.manager` does it twice a second.  :mod:`dial.limits` writes and undoes.

Source: Chen, Delimitrou, Martinez, *PARTIES: QoS-Aware Resource Partitioning for Multiple
Interactive Services*, ASPLOS 2019.
"""
