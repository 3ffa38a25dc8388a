"""Limits inside the VM, written for a while and always put back.

What dividing a VM (:mod:`dial.partition`) and charging for packets (:mod:`dial.netcharge`) have
in common: :mod:`~dial.limits.knobs` says which files set a limit, :mod:`~dial.limits.limiter`
writes them after :mod:`~dial.limits.journal` has recorded what was there,
:mod:`~dial.limits.periodic` acts at a steady pace, and :mod:`~dial.limits.guardian` undoes it all
when the agent is killed.
"""
