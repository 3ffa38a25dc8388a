"""``libpbox`` through ctypes: found, loaded once, its functions typed.

The prototypes are those of pbox/include/pbox.h; the library answers with negative errno values,
which become :class:`PBoxError` where a caller can do something about them.  What goes wrong with
an *event* is counted by the library, and never raised: a missing call must not break a service.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
from enum import IntEnum
from functools import cache
from pathlib import Path

LIBRARY_VARIABLE = "PBOX_LIBRARY"
"""Environment variable with the path of the library, where the loader does not find it."""

_NAME = "libpbox.so.1"

_BUILT_HERE = Path(__file__).resolve().parents[3] / "out" / "pbox" / "plain" / _NAME
"""Where ``make pbox`` puts it, in the checkout that this file is in."""


class LibraryMissing(ImportError):
    """libpbox is not installed."""


class PBoxError(OSError):
    """The library refused: ``errno`` says why, as pbox.h documents it."""


class Event(IntEnum):
    """The four state events of a virtual resource."""

    PREPARE = 0
    """Deferred by the resource from now on."""
    ENTER = 1
    """No longer."""
    HOLD = 2
    """Holds it, or a part of it."""
    UNHOLD = 3
    """Has given it back."""


class Bind(IntEnum):
    """What a thread does for a pBox: enum pbox_bind_flags."""

    DEDICATED = 0
    """Serves it alone: a penalty is a sleep."""
    SHARED = 1
    """Serves others too: a penalty is an instant to ask for."""


class Unbind(IntEnum):
    """enum pbox_unbind_flags."""

    EAGER = 0
    LAZY = 1
    """Cheaper where the same thread is the next to bind it; any other may."""


class Metric(IntEnum):
    """Which figure of a pBox's recent activities is held against its goal."""

    AVERAGE = 0
    TAIL = 1
    MAX = 2


class Mode(IntEnum):
    """Whether noisy activities are delayed."""

    MITIGATE = 0
    MEASURE = 1


class Rule(ctypes.Structure):
    """IsolationRule."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("metric", ctypes.c_int),
        ("isolation_level", ctypes.c_uint),
    )


class Options(ctypes.Structure):
    """struct pbox_options."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("mode", ctypes.c_int),
        ("domain", ctypes.c_char_p),
        ("page", ctypes.c_char_p),
        ("max_pboxes", ctypes.c_uint),
        ("max_keys", ctypes.c_uint),
        ("penalty_min_ns", ctypes.c_uint64),
        ("penalty_max_ns", ctypes.c_uint64),
    )


class RawStats(ctypes.Structure):
    """struct pbox_stats."""

    _fields_ = (
        ("activities", ctypes.c_uint64),
        ("executed_ns", ctypes.c_uint64),
        ("deferred_ns", ctypes.c_uint64),
        ("times_victim", ctypes.c_uint64),
        ("times_noisy", ctypes.c_uint64),
        ("penalties", ctypes.c_uint64),
        ("penalty_ns", ctypes.c_uint64),
        ("events_ignored", ctypes.c_uint64),
        ("level", ctypes.c_double),
    )


_INT, _KEY, _TEXT = ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
_PROTOTYPES = {
    "open_pbox": (_INT, (ctypes.POINTER(Options),)),
    "close_pbox": (None, ()),
    "pbox_page_path": (_TEXT, ()),
    "create_pbox": (_INT, (Rule,)),
    "release_pbox": (_INT, (_INT,)),
    "activate_pbox": (_INT, (_INT,)),
    "freeze_pbox": (_INT, (_INT,)),
    "update_pbox": (_INT, (_KEY, _INT)),
    "update_pbox_of": (_INT, (_INT, _KEY, _INT)),
    "unbind_pbox": (_INT, (_KEY, _INT)),
    "bind_pbox": (_INT, (_KEY, _INT)),
    "penalty_pbox": (ctypes.c_int64, (_INT,)),
    "name_pbox": (_INT, (_INT, _TEXT)),
    "name_pbox_key": (_INT, (_KEY, _TEXT)),
    "stat_pbox": (_INT, (_INT, ctypes.POINTER(RawStats))),
}


@cache
def library() -> ctypes.CDLL:
    """The library, loaded at the first call.

    Raises
    ------
    LibraryMissing
        If it is not there, or not this version; says where it was looked for.
    """
    built_here = str(_BUILT_HERE) if _BUILT_HERE.exists() else _NAME
    path = os.environ.get(LIBRARY_VARIABLE) or built_here
    try:
        loaded = ctypes.CDLL(path)
        for name, (answer, arguments) in _PROTOTYPES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = answer, arguments
    except (OSError, AttributeError) as error:
        raise LibraryMissing(
            f"{path}: {error}; install libpbox, or set {LIBRARY_VARIABLE} to its path"
        ) from error
    return loaded


def checked(answer: int, what: str) -> int:
    """An answer of the library that is no error.

    Raises
    ------
    PBoxError
        If it is one; ``what`` was asked for.
    """
    if answer < 0:
        raise PBoxError(-answer, f"{what}: {os.strerror(-answer)} ({errno.errorcode.get(-answer)})")
    return answer
