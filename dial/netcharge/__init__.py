"""Network processing that no accounting shows, charged to whose packets it was: Iron's idea.

The kernel handles received packets in softirqs, in the context of whoever happens to run or in
a thread of its own, and books the time to them or to nobody.  A service that is flooded so takes
CPU time that its own accounts do not show, from others or beyond its quota.  This part of the
agent is off unless asked for (``--net-charge``).

:mod:`~dial.netcharge.softirq` measures with eBPF, :mod:`~dial.netcharge.estimate` goes without,
:mod:`~dial.netcharge.iron` has the algorithms, pure, and :mod:`~dial.netcharge.enforce` charges
quotas by them; :mod:`~dial.netcharge.interrupts` has what softirqs cost beyond what is timed.

Source: Khalid et al., *Iron: Isolating Network-based CPU in Container Environments*, NSDI 2018.
"""
