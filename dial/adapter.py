"""The whole contract between DIAL and a load balancer, in one file.

An adapter is a Python distribution of its own.  It imports this module,
:mod:`dial.types` and :mod:`dial.errors`, nothing else of ``dial``, and is found through
the entry-point group ``dial.lb_adapters``::

    [project.entry-points."dial.lb_adapters"]
    haproxy = "dial_haproxy:create"

The entry point is a callable ``create(service, options) -> Adapter`` where ``service``
is the pool's name and ``options`` the user's ``[adapter.options]`` table, which the
adapter checks itself (``SettingError`` names the option).  ``create`` does no I/O.

The module that the entry point names may also offer ``check_files``, a
:class:`FileCheck`: it looks at the balancer's own configuration files with nothing running,
and says of other files that they are not its balancer's.

What an adapter promises is written as tests in :mod:`dial.conformance`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dial.errors import SettingError
from dial.types import ApplyReport, BalancerState

ENTRY_POINT_GROUP = "dial.lb_adapters"


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """Some finished requests, in columns of equal length n, in the order of the log.

    Attributes
    ----------
    names
        Backend names; ``backend`` indexes into it.
    backend
        int32[n], index of the backend that served the request.
    end_s
        float64[n], when the answer began, seconds since the epoch by the balancer's
        clock.
    latency_ms
        float64[n], response time; NaN where the balancer did not measure one.
    connect_ms
        float64[n], connect time; NaN where the connection was reused or none was made.
    failed
        bool[n], 5xx or broken off by the server's side.  A client that goes away is
        not the backend's failure.
    route
        Request class per request where the user logs one, else ``None``.
    malformed
        Lines since the last batch that could not be read; counted, never fatal.
    unattributed
        Requests that reached no backend of this service (no server available, refused
        by a rule, other pools).
    dropped
        Requests that were logged but forgotten, because batches were taken too slowly.
    stands_for
        Requests that each row stands for, where the balancer logs one of so many: counts are
        multiplied with it, and percentiles rest on the rows.
    """

    names: tuple[str, ...]
    backend: NDArray[np.int32]
    end_s: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    connect_ms: NDArray[np.float64]
    failed: NDArray[np.bool_]
    route: tuple[str, ...] | None = None
    malformed: int = 0
    unattributed: int = 0
    dropped: int = 0
    stands_for: int = 1

    def __len__(self) -> int:
        return len(self.backend)


class Severity(StrEnum):
    """How bad a finding of ``check`` is."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing has to change."""
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines of one configuration file that are taken out, and lines put in their place."""

    path: str
    after: int
    """The line before the change, counted from 1; 0 is the beginning of the file."""
    remove: int
    """How many lines behind it are taken out; 0 only puts in."""
    insert: tuple[str, ...]


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    r"""Change the text of one file; its last line then ends with a line break.

    The same edit given twice is made once; lines put in at one place stay in the order of
    the edits.

    Raises
    ------
    ValueError
        If an edit lies outside the text, or two take out the same line.

    Examples
    --------
    >>> apply_edits("a\nb", [Edit("f", 1, 1, ("B",)), Edit("f", 2, 0, ("c",))])
    'a\nB\nc\n'
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    last = len(lines)
    # From the end, so that line numbers stay true; what is taken out behind a line first, so
    # that what is put in there comes before it.
    for edit in sorted(dict.fromkeys(edits), key=lambda e: (e.after, e.remove > 0))[::-1]:
        if not 0 <= edit.after <= edit.after + edit.remove <= last:
            raise ValueError(f"{edit}: outside the text, or two edits take out one line")
        lines[edit.after : edit.after + edit.remove] = edit.insert
        last = edit.after
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of what ``dial check`` tells the admin."""

    severity: Severity
    what: str
    """What was looked at and found."""
    fix: str = ""
    """What to change in the balancer's own configuration; empty when all is well."""
    at: str = ""
    """File and line, as ``path:line``, where it is about one."""
    edits: tuple[Edit, ...] = ()
    """The change itself, where it can be made by lines; ``fix`` then says what else to mind."""
    settings: str = ""
    """DIAL's own configuration (TOML) that goes with the files; one finding of `check_files`."""


class Adapter(Protocol):
    """A load balancer that DIAL reads from and writes weights to.

    All methods may be called from one event loop only.  None of them may block it, and
    none may slow the data plane: a log nobody reads is dropped by the balancer.
    """

    name: str

    async def read(self) -> BalancerState:
        """Read servers, counters and the weights in force.

        Raises
        ------
        BalancerUnreachable, BalancerRefused, UnknownService
        """

    async def apply(self, weights: Mapping[str, int], *, version: int) -> ApplyReport:
        """Write weights in as few steps as the balancer allows, and read them back.

        Applying the same weights again is harmless.  A backend the balancer does not
        know is a failure in the report and keeps the others from nothing.

        Raises
        ------
        BalancerRefused
            If a weight is out of the declared range; then nothing was written.
        StalePlan
            If ``version`` is lower than one already applied by this adapter.
        BalancerUnreachable
            If nothing could be written, or it is not known what was.
        """

    def requests(self) -> AsyncIterator[RequestBatch]:
        """Finished requests as they are logged, until :meth:`aclose`.

        Survives the balancer's restart; loses what was logged meanwhile.
        """

    async def check(self) -> tuple[Finding, ...]:
        """What must change in the user's own configuration for DIAL to work."""

    async def aclose(self) -> None:
        """Give back sockets and files; weights stay as they are.  It may be used again."""


@runtime_checkable
class CountsEvents(Protocol):
    """An adapter that also counts what it turned away or could not do; shown as a metric."""

    events: Mapping[str, int]
    """By kind, since it was made."""


AdapterFactory = Callable[[str, Mapping[str, object]], Adapter]


class FileCheck(Protocol):
    """Looks at configuration files of a load balancer."""

    def __call__(self, paths: Sequence[Path], service: str = "") -> tuple[Finding, ...] | None:
        """What must change in them for DIAL to work; ``None`` if they are another program's.

        Parameters
        ----------
        paths
            Files and directories in the order in which the balancer is given them.
        service
            The pool that DIAL is to look after; all that it could, where empty.

        Raises
        ------
        SettingError
            If a file cannot be read.
        """


def load_adapter(name: str) -> AdapterFactory:
    """Find an installed adapter by its entry-point name.

    Raises
    ------
    SettingError
        If no installed distribution provides it; the message lists those there are.
    """
    found = {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        there = ", ".join(sorted(found)) or "none is installed"
        raise SettingError(
            f"adapter.name = {name!r}: no such adapter; installed: {there}; "
            f"pip install dial-lb-{name}"
        )
    factory: AdapterFactory = found[name].load()
    return factory


def check_files(paths: Sequence[Path], service: str = "") -> tuple[Finding, ...]:
    """Let the installed adapter that knows these files look at them.

    Raises
    ------
    SettingError
        If none of them does, or a file cannot be read.
    """
    asked = []
    refusal: SettingError | None = None
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP)):
        try:
            module = import_module(entry.module)
        except Exception as error:  # noqa: BLE001 - another distribution's import may raise anything
            asked.append(f"{entry.name}, which cannot be loaded: {type(error).__name__}: {error}")
            continue
        check: FileCheck | None = getattr(module, "check_files", None)
        try:
            findings = check(paths, service) if check is not None else None
        except SettingError as error:
            # Another one may read what this one cannot.
            refusal = refusal or error
            continue
        if findings is not None:
            return findings
        asked.append(entry.name)
    if refusal is not None:
        raise refusal
    names = ", ".join(map(str, paths))
    raise SettingError(
        f"{names}: not the configuration of a load balancer that an installed adapter knows "
        f"({', '.join(asked) or 'none is installed'}), nor TOML"
    )
