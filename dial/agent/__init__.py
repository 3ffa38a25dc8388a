"""What a tenant can see from inside one VM, once a second, sent to the controller.

Runs beside the application on every VM, so it must cost next to nothing: the standard
library only, one small thread beside the main one, files read with bare system calls.
psutil would be allowed, and would add 6 MiB of resident memory for files that have to be
parsed here anyway to be testable on a fixture tree.

A sample's way: :mod:`~dial.agent.scope` picks the collectors, :mod:`~dial.agent.sampler`
makes rates of their readings, :mod:`~dial.agent.loop` keeps the pace,
:mod:`~dial.agent.outbox` holds what :mod:`~dial.agent.push` delivers through
:mod:`~dial.agent.client`.  :mod:`~dial.agent.command` puts them together.
"""

from dial.agent.command import main

__all__ = ["main"]
