"""What is seen while the lab runs: a table that is redrawn, or plain lines in a log.

Redrawing is done when there is something new, twice a second at most, on the cores that no
machine uses; it takes about 1 % of one.
"""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dial_lab.block import Progress as BlockProgress
from dial_lab.haproxy import WEIGHT

_PLAIN_EVERY_S = 10.0

_PHASE_STYLE = {"quiet": "green", "contended": "red", "recovered": "cyan"}


class View:
    """Shows one run.  A context manager: the terminal is put right again at exit.

    Parameters
    ----------
    console
        Where to; plain lines when it is no terminal.
    percentile
        The x of T_x, for the column's name.
    victim
        The backend that has the neighbour.
    """

    def __init__(self, console: Console, percentile: float, victim: str) -> None:
        self._console = console
        self._percentile = percentile
        self._victim = victim
        self._bar = Progress(
            TextColumn("whole run"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
        )
        self._task: TaskID | None = None
        self._began = time.monotonic()
        self._live: Live | None = None
        self._said = (None, "", 0.0)  # type: tuple[str | None, str, float]

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def begin(self, total_s: float) -> None:
        """Start showing a run that will take about ``total_s`` seconds."""
        self._began = time.monotonic()
        self._task = self._bar.add_task("run", total=total_s)
        if self._console.is_terminal:
            self._live = Live(self._bar, console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        else:
            self.note(f"about {total_s / 60:.1f} minutes")

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(text), soft_wrap=True)

    def show(self, block: BlockProgress) -> None:
        """The block that runs, as it is now."""
        now = time.monotonic()
        if self._task is not None:
            self._bar.update(self._task, completed=now - self._began)
        if self._live is not None:
            self._live.update(Group(self._table(block), self._bar), refresh=True)
            return
        policy, phase, at = self._said
        fresh = (policy, phase) != (block.policy, block.phase)
        if fresh or now - at >= _PLAIN_EVERY_S:
            self._said = (block.policy, block.phase, now)
            self.note(self._line(block))

    def _table(self, block: BlockProgress) -> Table:
        phase = Text(block.phase, style=_PHASE_STYLE.get(block.phase, "yellow"))
        title = Text.assemble(
            (block.policy, "bold"), "  ", phase, f"  {max(0.0, block.elapsed_s):.0f} s"
        )
        table = Table(title=title, title_justify="left", min_width=70)
        table.add_column("backend")
        for name in ("req/s", f"T{self._percentile:g} ms"):
            table.add_column(name, justify="right")
        table.add_column("verdict", min_width=12)
        for name in ("rho_bg", "weight"):
            table.add_column(name, justify="right")
        for row in rows(block):
            hit = row[0] == self._victim and block.phase == "contended"
            table.add_row(*row, style="bold" if hit else "")
        return table

    def _line(self, block: BlockProgress) -> str:
        head = f"  {block.policy:<11} {block.phase:<9} {max(0.0, block.elapsed_s):4.0f} s"
        parts = [
            f"{name} T{self._percentile:g} {t_x} ms, weight {weight}"
            + (f" ({verdict}, rho_bg {rho_bg})" if verdict not in ("", "none") else "")
            for name, _, t_x, verdict, rho_bg, weight in rows(block)
        ]
        return "  |  ".join([head, *parts])


def rows(block: BlockProgress) -> list[tuple[str, str, str, str, str, str]]:
    """Backend, rate, T_x, verdict, rho_bg, weight as text; what nobody knows stays empty."""
    planned: dict[str, dict[str, Any]] = {
        backend["name"]: backend for backend in (block.plan or {}).get("backends", ())
    }
    found = []
    for name, load in block.load.items():
        plan = planned.get(name)
        verdict = plan["verdict"] if plan else {}
        found.append(
            (
                name,
                _number(load.get("rate_per_s"), 0),
                _number(load.get("t_x_ms"), 1),
                str(verdict.get("cause", "")),
                _number(verdict.get("rho_bg"), 2),
                # Without a controller nobody touches the configured weight.
                str(plan["weight"] if plan else WEIGHT),
            )
        )
    return found


def _number(value: object, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else ""
