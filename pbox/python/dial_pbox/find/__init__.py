"""``pbox-find``: where a C program waits for a virtual resource, and where to tell of it.

Problem
    To use pBox, somebody has to find the places of a code base where one activity waits for
    another: a handful among thousands of functions.

Algorithm
    Algorithm 2 of the paper.  A *waiting call* is a call of a standard function that waits, or
    of a wrapper of one: a function that calls one on every path from its entry to its end.  A
    waiting call inside a loop whose condition reads a variable that activities share is a
    place where state events belong: PREPARE before the loop, ENTER after it.

    :mod:`~dial_pbox.find.source` parses (libclang), :mod:`~dial_pbox.find.waiting` finds waiting
    calls and wrappers, :mod:`~dial_pbox.find.loops` the loops and their conditions,
    :mod:`~dial_pbox.find.shared` what these read, :mod:`~dial_pbox.find.places` puts it together
    and proposes the events, :mod:`~dial_pbox.find.score` holds it against calls that are there.

Source
    Hu, Huang, Huang: pBox, SOSP 2023, 4.5 and Algorithm 2.

Departures
    * Wrappers of wrappers count, to any depth: deep call chains are among the reasons that the
      paper gives for what its tool misses (6.7).
    * A condition that is a function's answer, or a local variable set from shared ones in the
      loop, reads what that function, or that assignment, reads: the other reason.
    * An ``if`` in the loop that leaves it is a condition of it: servers write ``for (;;)``.
    * On the syntax tree instead of LLVM's control-flow graph, so that it needs no build: "on
      every path" is followed through statements, and a ``goto`` forward ends its path there.
"""
