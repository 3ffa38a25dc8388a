"""Rows in which a missing signal tells nothing of the class.

Problem
    A tree learns from the *absence* of a signal as readily as from its value.  A session
    about the network records connect times because its clients open new connections; one
    about the CPU keeps connections open and has none.  "There is a connect time, so it is
    the network" is true of the lab and of nothing else.

Remedy
    In each tier, of the signals that some rows have and others lack, every row is taught
    twice:

        completed   with what it lacks drawn from quiet intervals of sessions that have it: a
                    resource that nobody disturbs reads as in quiet times
        reduced     without any of these signals

    so that all classes have them equally often (and a reduced row whose class cannot be told
    any more is ``unknown``).  Signals that a tier lacks throughout are
    left as they are, and signals that every row has are not touched.

Limits
    A draw from quiet intervals assumes that contention for one resource does not show in
    the signals of another.  Accuracy is measured on rows as recorded.

Source
    Drawing from like cases: hot-deck imputation (Andridge and Little, International
    Statistical Review 78, 2010).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dial_training.table import Table, right_answers

_SELDOM = 0.05
"""A reading that failed here and there tells nothing of the session, and is left missing."""

_SEED = 11
"""The same data give the same rows."""


def balanced(table: Table) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Rows and labels to teach from.

    Returns
    -------
    x : (k, features)
    y : (k,) with k = n, or 2 n where some tier has signals that are there for some rows only.
    """
    random = np.random.default_rng(_SEED)
    completed, reduced = table.x.copy(), table.x.copy()
    for tier in np.unique(table.tier):
        rows = np.flatnonzero(table.tier == tier)
        absent = np.isnan(table.x[rows])
        lacked = absent.mean(axis=0)
        for column in np.flatnonzero((lacked > _SELDOM) & (lacked < 1.0)):
            reduced[rows, column] = np.nan
            known = table.quiet[:, column]
            known = known[~np.isnan(known)]
            lacking = rows[absent[:, column]]
            if known.size:
                completed[lacking, column] = random.choice(known, lacking.size)
            else:
                # Nobody knows what it reads in quiet times, so its values cannot be used.
                completed[rows, column] = np.nan
    if np.array_equal(completed, reduced, equal_nan=True):
        return completed, table.y
    answers = np.concatenate([table.y, right_answers(reduced, table.y)])
    return np.vstack([completed, reduced]), answers
