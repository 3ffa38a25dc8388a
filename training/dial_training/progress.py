"""What is seen while sessions are recorded: a bar, or plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from dial_training.expand import SessionSpec


class View:
    """Shows one collection.  A context manager: the terminal is put right again at exit.

    Parameters
    ----------
    console
        Where to; only plain lines when it is no terminal.
    left
        The sessions that are to be recorded.
    of
        How many there are with those that are done.
    """

    def __init__(self, console: Console, left: Sequence[SessionSpec], of: int) -> None:
        self._console = console
        self._of = of
        self._done = of - len(left)
        self._left_s = sum(spec.plan.expected_s for spec in left)
        self._ended_s = 0.0
        self._began = time.monotonic()
        self._spec: SessionSpec | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=self._left_s or None)

    def __enter__(self) -> View:
        self._bar.start()
        if self._left_s:
            self.note(
                f"{self._of - self._done} of {self._of} sessions to record, "
                f"about {self._left_s / 60:.0f} minutes"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, spec: SessionSpec) -> None:
        """A session starts."""
        self._spec, self._began = spec, time.monotonic()
        self.show("starting")

    def show(self, phase: str) -> None:
        """It is at this point now."""
        if self._spec is None:
            return
        within_s = min(time.monotonic() - self._began, self._spec.plan.expected_s)
        self._bar.update(
            self._task,
            completed=self._ended_s + within_s,
            description=f"{self._done + 1}/{self._of} {self._spec.id}: {phase}",
        )

    def done(self, spec: SessionSpec, what: str) -> None:
        """It was recorded."""
        self._done += 1
        self._ended_s += spec.plan.expected_s
        left_min = (self._left_s - self._ended_s) / 60
        took_s = time.monotonic() - self._began
        self.note(f"{spec.id}: {took_s:.0f} s, cases: {what}; about {left_min:.0f} minutes left")

    def fail(self, spec: SessionSpec, why: str, *, again: bool) -> None:
        """It failed."""
        if not again:
            self._ended_s += spec.plan.expected_s
        self.note(f"{spec.id} failed: {why}" + ("; will be tried again" if again else ""))

    def skip(self, spec: SessionSpec) -> None:
        """It is left for another time."""
        self._ended_s += spec.plan.expected_s
        self.note(f"{spec.id}: not started, it would take {spec.plan.expected_s:.0f} s")

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(text), soft_wrap=True)
