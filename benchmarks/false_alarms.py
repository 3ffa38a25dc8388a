"""How long a fleet of three backends goes without load being moved for nothing.

Recorded sessions of three machines without a neighbour are drawn anew, block by block
(:mod:`benchmarks.support.bootstrap`), into hours, and replayed through the product's ``step``
as shipped, beside a balancer that takes its weights (:mod:`benchmarks.support.life`).  Twice:
with the tenant's own load as it was learnt (``quiet``), and with changes of its arrival rate and
of what its requests cost (``load``).

``hours``, ``false_mitigations``
    Replayed with the configured weights in force, and plans in that time that changed them.
``mtbf_hours``, ``mtbf_hours_ci95``
    Mean time between false mitigations, with the exact interval for as many Poisson events; its
    upper end is null where there was none, and the mean time is then the whole time: at least.
``quiet``, ``load``
    The same for each of the two, and how often less than a mitigation came about:
    ``above_s`` seconds between intervals in which a backend's T_x was above what was expected,
    ``suspected_s`` between those that looked like a neighbour, and ``false_verdicts`` verdicts
    that named one and moved nothing.  Recorded stages are short, so load steps to and fro
    ``load_changes_per_h`` times an hour, by up to half: far more than in any day.
``shifted_hours``
    Until load had been handed back, not in ``hours``: longer than in life, where a backend that
    has less to do is seen to be free sooner.
``sets``, ``sessions``
    The same for each set of sessions, and for each session.
``mitigations``
    What they looked like: where, of what cause, how often, and the evidence of the first.
``tau_ticks``
    Autocorrelation time of the detector's residual; ``block_ticks`` is many times that.

What this cannot show: what never happened in ``distinct_hours`` of recording, in one computer's
lab, however many hours are drawn from it.  The interval is that of the drawing; another
recording would give another mean.  The classifier was trained on the sessions of set ``train``;
the others are new to it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.support.harness import machine, report, versions
from benchmarks.support.life import FalseMitigation, Life, live
from benchmarks.support.poisson import MeanTime
from benchmarks.support.quiet import KINDS, Kind, Recorded, Stratum, read
from dial.controller.policy import Policy
from dial.model import LAB, load_model
from dial.types import Cause
from dial_training import replay
from dial_training.evaluate import DATA

_LIFE_H = 2.0
"""Of one controller: twelve times what it remembers at ticks of 2 s, and short enough to share
the work out evenly."""

_SHOWN = 10
"""False mitigations that are listed of each kind, the commonest first."""


@dataclass(frozen=True, slots=True)
class Task:
    """One life to be lived."""

    stratum: int
    ticks_at_risk: int
    seed: tuple[int, ...]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.false_alarms", description=__doc__)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    parser.add_argument("--hours", type=float, default=500.0, help="replayed of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--block-ticks", type=float, default=10.0, help="mean length of a block")
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[DATA], help="recorded sessions (Parquet)"
    )
    parser.add_argument("--picture", type=Path, help="draw a PNG file")
    arguments = parser.parse_args()

    recorded = read(arguments.data)
    tasks = list(share_out(recorded.strata, arguments.hours, arguments.seed))
    lives = live_all(recorded, tasks, arguments.block_ticks, arguments.jobs)
    result: dict[str, Any] = {
        "benchmark": "false_alarms",
        **figures(recorded.strata, lives),
        **{kind: of_kind(recorded, lives, kind) for kind in KINDS},
        "sets": of_sets(recorded.strata, lives),
        "sessions": [of_session(recorded.strata, lives, at) for at in range(len(recorded.strata))],
        "mitigations": [
            alike
            for kind in KINDS
            for alike in commonest(m for life in lives for m in life.mitigations if m.kind == kind)
        ],
        "tau_ticks": recorded.tau_ticks,
        "block_ticks": arguments.block_ticks,
        "seed": arguments.seed,
        "machine": machine(),
        "versions": versions("dial-lb", "numpy", "scipy"),
    }
    if arguments.picture is not None:
        # Drawing is not what most runs are for, and takes a second to import.
        from benchmarks.support.false_alarms_picture import draw  # noqa: PLC0415

        draw(result, arguments.picture)
    report(in_words(result), result, as_json=arguments.json)


def share_out(found: Sequence[Stratum], hours: float, seed: int) -> Iterator[Task]:
    """As many lives that each kind has its hours, each recorded second drawn equally often."""
    for number, stratum in enumerate(found):
        of_kind_s = sum(other.seconds for other in found if other.kind == stratum.kind)
        own_h = hours * stratum.seconds / of_kind_s
        count = max(1, round(own_h / _LIFE_H))
        interval_s = stratum.seconds / len(stratum.observations)
        ticks = ceil(own_h * 3600.0 / interval_s / count)
        for life in range(count):
            yield Task(number, ticks, (seed, number, life))


def live_all(
    recorded: Recorded, tasks: Sequence[Task], block_ticks: float, jobs: int
) -> list[Life]:
    """Every life, in the order of the tasks."""
    found: dict[Task, Life] = {}
    console = Console(stderr=True)
    # Not forked: the data were read with threads.
    context = multiprocessing.get_context("spawn")
    with (
        Progress(console=console, disable=not console.is_terminal) as progress,
        ProcessPoolExecutor(jobs, context, _prepare, (recorded, block_ticks)) as pool,
    ):
        bar = progress.add_task("replaying", total=sum(task.ticks_at_risk for task in tasks))
        waiting = {pool.submit(_live, task): task for task in tasks}
        for done in as_completed(waiting):
            task = waiting[done]
            found[task] = done.result()
            progress.advance(bar, task.ticks_at_risk)
    return [found[task] for task in tasks]


_prepared: tuple[Policy, Recorded, float]
"""Of one worker process."""


def _prepare(recorded: Recorded, block_ticks: float) -> None:
    global _prepared  # noqa: PLW0603 - how a worker process keeps what all its tasks share
    product = replay.policy(load_model(LAB), recorded.percentile)
    _prepared = (product, recorded, block_ticks)


def _live(task: Task) -> Life:
    product, recorded, block_ticks = _prepared
    return live(
        product,
        recorded.strata[task.stratum],
        task.stratum,
        ticks_at_risk=task.ticks_at_risk,
        block_ticks=block_ticks,
        seed=task.seed,
    )


def figures(found: Sequence[Stratum], lives: Sequence[Life]) -> dict[str, Any]:
    """Of some lives together."""
    hours = sum(life.at_risk_s for life in lives) / 3600.0
    events = sum(len(life.mitigations) for life in lives)
    between = MeanTime.of(hours, events)
    drawn_from = [found[number] for number in {life.stratum for life in lives}]
    # Of one session all kinds have the same ticks, but for those with other load.
    distinct_s = {
        (stratum.session, seen.tick): seen.interval_s
        for stratum in drawn_from
        for seen in stratum.observations
    }
    return {
        "hours": hours,
        "false_mitigations": events,
        "mtbf_hours": between.hours,
        "mtbf_hours_ci95": [between.low, between.high],
        "lives": len(lives),
        "shifted_hours": sum(life.shifted_s for life in lives) / 3600.0,
        "distinct_hours": sum(distinct_s.values()) / 3600.0,
    }


def of_kind(recorded: Recorded, lives: Sequence[Life], kind: Kind) -> dict[str, Any]:
    """Of all lives of a kind; see the module."""
    own = [life for life in lives if recorded.strata[life.stratum].kind == kind]
    at_risk_s = sum(life.at_risk_s for life in own)
    verdicts = sum((life.verdicts for life in own), Counter[str]())
    false_verdicts = sum(n for cause, n in verdicts.items() if Cause(cause).costs_capacity)
    return figures(recorded.strata, own) | {
        "load_changes_per_h": 3600.0 * sum(life.load_changes for life in own) / at_risk_s,
        "above_s": at_risk_s / max(1, sum(life.above for life in own)),
        "suspected_s": at_risk_s / max(1, sum(life.suspected for life in own)),
        "false_verdicts": false_verdicts,
        "verdicts": dict(verdicts),
        "sessions_left_out": recorded.left_out[kind],
    }


def of_sets(found: Sequence[Stratum], lives: Sequence[Life]) -> dict[str, Any]:
    """Of each set: those that the classifier was trained on, and those that are new to it."""
    names = sorted({stratum.set for stratum in found})
    return {
        name: figures(found, [life for life in lives if found[life.stratum].set == name])
        for name in names
    }


def of_session(found: Sequence[Stratum], lives: Sequence[Life], number: int) -> dict[str, Any]:
    """Of one stratum."""
    stratum = found[number]
    own = [life for life in lives if life.stratum == number]
    names = {"kind": stratum.kind, "session": stratum.session, "set": stratum.set}
    return names | figures(found, own)


def commonest(mitigations: Iterable[FalseMitigation]) -> list[dict[str, Any]]:
    """What false mitigations look like: alike are those at the same recorded tick."""
    by_origin: dict[tuple[object, ...], list[FalseMitigation]] = {}
    for each in mitigations:
        accused = tuple((name, cause) for name, cause, _ in each.backends)
        by_origin.setdefault((each.kind, each.session, each.tick, accused), []).append(each)
    alike = sorted(by_origin.values(), key=len, reverse=True)
    return [
        {
            "count": len(group),
            "kind": group[0].kind,
            "session": group[0].session,
            "tick": group[0].tick,
            "level": group[0].level,
            "run": group[0].run,
            "backends": [
                {"backend": name, "cause": cause, "evidence": list(evidence)}
                for name, cause, evidence in group[0].backends
            ],
            "median_h": float(np.median([each.at_h for each in group])),
        }
        for group in alike[:_SHOWN]
    ]


def in_words(result: Mapping[str, Any]) -> list[str]:
    """For people."""
    lines = []
    for kind in KINDS:
        of_one = result[kind]
        lines.append(
            f"{kind}: {of_one['hours']:.0f} h drawn from {60.0 * of_one['distinct_hours']:.0f} min "
            f"recorded, {of_one['load_changes_per_h']:.0f} load changes an hour, "
            f"{of_one['false_mitigations']} false mitigations: {_between(of_one)}; "
            f"T_x above every {of_one['above_s']:.0f} s, "
            f"like a neighbour every {of_one['suspected_s']:.0f} s"
        )
    lines.append(f"together: {_between(result)}")
    lines.append(
        f"blocks of {result['block_ticks']:g} ticks on average; the residual's autocorrelation "
        f"time is {result['tau_ticks']:.1f}"
    )
    for alike in result["mitigations"]:
        who = ", ".join(f"{b['backend']} {b['cause']}" for b in alike["backends"])
        where = f"{alike['kind']}, {alike['session']}, tick {alike['tick']}"
        lines.append(f"{alike['count']:6d} x {where}: {who}")
        lines += [f"{'':9}{'; '.join(b['evidence'])}" for b in alike["backends"]]
    return lines


def _between(of_one: Mapping[str, Any]) -> str:
    low, high = of_one["mtbf_hours_ci95"]
    if high is None:
        return f"none in {of_one['hours']:.0f} h, so surely at least {low:.0f} h apart"
    return f"{of_one['mtbf_hours']:.2f} h apart ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
