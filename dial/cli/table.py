"""A row per backend, as ``dial status`` prints it once and ``dial top`` again and again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from dial.cli.client import show
from dial.service.views import BackendState, Baseline, State

LEAST_NAME = 8
"""Columns of a name that are shown in any case."""


def is_slow(backend: BackendState) -> bool:
    """Whether it is held slower than its own load explains."""
    return backend.cause is not None and not backend.cause.blames_nobody


def heading(state: State) -> Text:
    """Who is looked after, how, and how far it is."""
    mode = f"{state.mode}"
    if state.frozen_since_s is not None:
        since = datetime.fromtimestamp(state.frozen_since_s, UTC)
        held_s = max(0.0, state.at_s - state.frozen_since_s)
        date = f"{since:%Y-%m-%d} " if held_s >= 86400.0 else ""
        mode += f" since {date}{since:%H:%M:%S} UTC ({duration(held_s)})"
    return Text(f"{state.service} ({state.adapter}), {mode}, tick {state.tick}")


def duration(seconds: float) -> str:
    """A time in the largest unit of which there are two or more, cut off.

    Examples
    --------
    >>> duration(42.5), duration(119.0), duration(7300.0)
    ('42 s', '119 s', '2 h')
    """
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2.0 * unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds // 1.0:.0f} s"


def table(
    state: State, backends: Iterable[BackendState], width: int, *, learnt: bool = False
) -> Table:
    """These backends of the state, a line each; names give way where ``width`` is short.

    With ``learnt`` also how much quiet time what is expected rests on.
    """
    backends = list(backends)
    t_x = f"T{state.percentile:g} ms"
    age = ("learnt",) if learnt else ()
    titles = ("rate/s", t_x, "expected", *age, "verdict", "rho_bg", "weight", "share")
    rows = [
        (
            f"{backend.rate_per_s:.1f}",
            show(backend.t_x_ms, 1),
            show(backend.expected_t_x_ms, 1),
            *([_age(backend)] if learnt else []),
            backend.cause or "-",
            show(backend.rho_bg),
            f"{backend.weight}",
            show(backend.share, 3),
        )
        for backend in backends
    ]
    taken = sum(2 + max(map(len, column)) for column in zip(titles, *rows, strict=True))
    room = max(LEAST_NAME, width - taken)
    shown = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    shown.add_column("backend", no_wrap=True)
    for title in titles:
        shown.add_column(title, justify="left" if title == "verdict" else "right", no_wrap=True)
    for backend, cells in zip(backends, rows, strict=True):
        # Names come from outside: as Text they are shown, never read as Rich's markup.
        name = Text(shorten(backend.name, room))
        shown.add_row(name, *map(Text, cells), style="yellow" if is_slow(backend) else "")
    return shown


def doubt(baseline: Baseline) -> str:
    """Why what is normal for a backend may be a neighbour's doing."""
    return (
        f"its normal is {show(baseline.times_siblings, 1)} times its siblings': a slower machine, "
        "or a neighbour that was there from the start"
    )


def _age(backend: BackendState) -> str:
    baseline = backend.baseline
    return duration(baseline.age_s) if baseline else "-"


def shorten(name: str, room: int) -> str:
    """Cut a name in its middle, for names in a fleet differ at their ends.

    Examples
    --------
    >>> shorten("frankfurt-web-17", 10)
    'frank…b-17'
    """
    if cell_len(name) <= room:
        return name
    tail = (room - 1) // 2
    return f"{name[: room - 1 - tail]}…{name[-tail:]}"
