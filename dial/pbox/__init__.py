"""The bridge: that an application blocks itself, as one more signal of a VM.

A VM can be slow while all its hardware is idle, because its activities wait for one another:
for a lock, a free buffer, a ticket.  Who looks at the hardware alone would blame a neighbour
that is not there.  The pBox paper (Hu, Huang, Huang; SOSP 2023) calls that waiting *deferring*
and has the application tell of it.  Here the agent reads what was told, from one of two sources:

:mod:`dial.pbox.page`
    the statistics page of an application that is linked with ``libpbox``, or runs under its shim;
:mod:`dial.pbox.postgres`
    the wait events of a PostgreSQL server, which nobody has to link with anything.

Both come to the same totals (:mod:`dial.pbox.deferral`), and those to the fields
``deferral_fraction``, ``interference_level`` and ``top_resource`` of a sample.  What the
controller makes of them is told in :mod:`dial.classifier.deferral`.

Standard library only: this runs in the agent.
"""
