"""``python -m dial_training.collect EXPERIMENT... --out DIR``: record what experiments ask for.

Each session leaves a part of the data set, ``DIR/parts/ID.parquet``, which appears whole or
not at all: what is there is done, and the same command goes on where it was broken off.  A
session that fails is tried once more at the end, and its logs stay in ``DIR/failed/ID``.  In
the end all parts are one file, ``DIR/dataset.parquet``.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer.exceptions import TyperException

from dial.errors import DialError
from dial_lab.request import MACHINES
from dial_lab.session import SessionPlan, SessionRecord, Show, run_session
from dial_lab.topology import LabBusy, host_cgroups
from dial_training import experiment, label
from dial_training.dataset import Dataset, merge, sha256
from dial_training.errors import ExperimentError, TrainingError
from dial_training.expand import SessionSpec, expand
from dial_training.host import MOST_BUSY, MOST_STEAL, CpuTime, Use
from dial_training.progress import View

_LOOK_S = 1.0
_BUSY_WAIT_S = 900.0
_BUSY_PAUSE_S = 1.0
"""How long, and how often, a session waits for another lab to end."""

Run = Callable[[SessionPlan, Path, Show], SessionRecord]
"""As :func:`dial_lab.session.run_session`."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Store:
    """Where a collection is kept."""

    directory: Path

    def part(self, spec: SessionSpec) -> Path:
        """The file of one session, there when the session is done."""
        return self.directory / "parts" / f"{spec.id}.parquet"

    def logs(self, spec: SessionSpec) -> Path:
        """Where a session leaves logs and recording while it runs, and when it failed."""
        return self.directory / "failed" / spec.id

    def left(self, specs: Sequence[SessionSpec]) -> list[SessionSpec]:
        """The sessions that are not done."""
        return [spec for spec in specs if not self.part(spec).exists()]

    def merge(self, specs: Sequence[SessionSpec]) -> Path:
        """Make one file of all sessions that are done."""
        parts = [Dataset.load(self.part(s)) for s in specs if self.part(s).exists()]
        path = self.directory / "dataset.parquet"
        merge(parts).write(path)
        return path


def specs_of(paths: Sequence[Path]) -> list[SessionSpec]:
    """The sessions of some experiments.

    Raises
    ------
    ExperimentError
        If an experiment cannot be used, or two of them want the same session.
    """
    found: dict[str, SessionSpec] = {}
    for path in paths:
        for spec in expand(experiment.load(path)):
            if spec.id in found:
                raise ExperimentError(f"{path}: session {spec.id} is in another experiment too")
            found[spec.id] = spec
    return list(found.values())


def record(spec: SessionSpec, store: Store, run: Run, show: Show) -> Dataset:
    """Run one session and keep its part.

    Raises
    ------
    DialError
        If it fails; its logs stay.
    """
    logs = store.logs(spec)
    shutil.rmtree(logs, ignore_errors=True)
    try:
        found = label.dataset(spec, _in_turn(run, spec.plan, logs, show))
    except (OSError, subprocess.SubprocessError) as error:
        raise TrainingError(f"{type(error).__name__}: {error}") from error
    store.part(spec).parent.mkdir(parents=True, exist_ok=True)
    found.write(store.part(spec))
    shutil.rmtree(logs)
    return found


def _in_turn(run: Run, plan: SessionPlan, logs: Path, show: Show) -> SessionRecord:
    """Run a session, when another lab on this computer has ended."""
    give_up = time.monotonic() + _BUSY_WAIT_S
    while True:
        try:
            return run(plan, logs, show)
        except LabBusy as busy:
            if time.monotonic() > give_up:
                raise
            show(f"waiting: {busy}")
            time.sleep(_BUSY_PAUSE_S)


def record_all(
    specs: Sequence[SessionSpec],
    store: Store,
    view: View,
    *,
    run: Run = run_session,
    at_most_s: float = float("inf"),
) -> dict[str, str]:
    """Run all sessions, and those that failed once more.

    Parameters
    ----------
    specs
        Sessions that are not done.
    store
        Where to keep them.
    view
        Is told how it goes.
    run
        Runs one session.
    at_most_s
        No session is started that is expected to end later than this from now.

    Returns
    -------
    dict
        Why, by id of the sessions that failed twice.
    """
    stop_at = time.monotonic() + at_most_s
    waiting = [(spec, True) for spec in specs]
    failed = {}
    while waiting:
        spec, again = waiting.pop(0)
        if time.monotonic() + spec.plan.expected_s > stop_at:
            view.skip(spec)
            continue
        before = CpuTime.read()
        try:
            view.begin(spec)
            found = record(spec, store, run, view.show)
        except DialError as error:
            view.fail(spec, str(error), again=again)
            if again:
                waiting.append((spec, False))
            else:
                failed[spec.id] = str(error)
        else:
            steal = Use.between(before, CpuTime.read()).steal
            view.done(spec, summary(found))
            if steal > MOST_STEAL:
                view.note(f"  somebody else's computer took {steal:.1%} of this one's CPU time")
    return failed


def summary(data: Dataset) -> str:
    """Cases by label, in words."""
    counts = Counter(case.truth.label.value for case in data.cases())
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def look_around(view: View) -> None:
    """Say so when this computer is busy before anything is started."""
    before = CpuTime.read()
    time.sleep(_LOOK_S)
    use = Use.between(before, CpuTime.read())
    if use.busy > MOST_BUSY or use.steal > MOST_STEAL:
        view.note(
            f"this computer is busy: {use.busy:.0%} of its cores are used and {use.steal:.1%} "
            "stolen with no session running; what is recorded now will show it"
        )


@app.command()
def collect(
    experiments: Annotated[list[Path], typer.Argument(help="TOML files.")],
    *,
    out: Annotated[Path, typer.Option(help="Where parts and data set go.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show sessions, cases and time, and run nothing.")
    ] = False,
    minutes: Annotated[
        float, typer.Option(help="Start no session that would end later; 0 only merges.")
    ] = float("inf"),
) -> None:
    """Record the sessions of experiments, and make one data set of them."""
    specs = specs_of(experiments)
    store = Store(out)
    console = Console()
    if dry_run:
        console.print(overview(specs, store))
        return
    left = store.left(specs)
    failed: dict[str, str] = {}
    with View(console, left, len(specs)) as view:
        if left and minutes > 0:
            host_cgroups()
            look_around(view)
            failed = record_all(left, store, view, at_most_s=60.0 * minutes)
    path = store.merge(specs)
    data = Dataset.load(path)
    rows = data.frame().height
    console.print(
        f"{path}: {len(data.sessions)} of {len(specs)} sessions, {rows} rows, "
        f"{path.stat().st_size / 1024:.0f} KiB\ncases: {summary(data)}\nsha256 {sha256(path)}",
        highlight=False,
        soft_wrap=True,
    )
    if failed:
        raise TrainingError(f"{len(failed)} sessions failed twice: {', '.join(failed)}")


def overview(specs: Sequence[SessionSpec], store: Store) -> Table:
    """Sessions, cases and time by set and resource, and of what is not done yet."""
    table = Table("set", "resource", "sessions", "cases", "minutes", "left")
    groups: dict[tuple[str, str], list[SessionSpec]] = {}
    for spec in specs:
        groups.setdefault((spec.set, spec.plan.resource), []).append(spec)
    for (name, resource), group in [*groups.items(), (("all", ""), list(specs))]:
        counts = Counter(
            label.cause(stage, machine).value
            for spec in group
            for stage in spec.plan.stages
            for machine in MACHINES
        )
        cases = ", ".join(f"{count} {cause}" for cause, count in sorted(counts.items()))
        table.add_row(
            name,
            resource,
            str(len(group)),
            cases,
            f"{sum(s.plan.expected_s for s in group) / 60:.1f}",
            f"{sum(s.plan.expected_s for s in store.left(group)) / 60:.1f}",
        )
    return table


def _on_term(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Run the command line; an expected error is one line and exit code 2."""
    # Unwinds like Ctrl-C does, so that everything is cleaned up.
    signal.signal(signal.SIGTERM, _on_term)
    try:
        code = app(standalone_mode=False)
    except TyperException as error:
        sys.stderr.write(f"collect: {error.format_message()}\n")
        sys.exit(2)
    except DialError as error:
        sys.stderr.write(f"collect: {' '.join(str(error).split())}\n")
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    if code == 130:
        sys.stderr.write("collect: interrupted; the same command goes on from here\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
