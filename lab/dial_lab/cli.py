"""``dial-lab``: ``list``, ``run`` and ``demo``."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer.exceptions import TyperException

from dial.errors import DialError, LabError
from dial_lab import picture, table
from dial_lab.inside import INSIDE
from dial_lab.live import View
from dial_lab.policies import BALANCERS, DEFAULT_POLICIES, POLICIES, policy
from dial_lab.processes import clean_up_when_told_to_end
from dial_lab.request import MACHINES, Request
from dial_lab.run import Outcome, execute
from dial_lab.scenarios import SCENARIOS, scenario

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Emulated machines, hidden neighbours, load and scenarios on one Linux computer.",
)

DEFAULT_LOAD = 0.45
DEFAULT_SEVERITY = 0.3
"""Round robin then sends the victim a little more than it can serve (at load 0.45).

At 0.5 even the best possible split leaves 0.4 to 0.5 of round robin's P90: nobody has much to
mend there.  Both can be chosen.
"""

_INTERRUPTED = 130


@app.command("list")
def list_all() -> None:
    """Show scenarios and policies."""
    console = Console()
    console.print("scenarios")
    for each in SCENARIOS.values():
        console.print(f"  {each.name:<12} {each.text}")
    for name, (text, _) in INSIDE.items():
        console.print(f"  {name:<12} {text}")
    console.print("policies")
    for one in POLICIES.values():
        ticks = f", weights by a controller every {one.interval_s:g} s" if one.interval_s else ""
        how = [f"balance {one.balance}" if one.balance else "", one.lb_policy]
        console.print(f"  {one.name:<12} {' / '.join(filter(None, how))}{ticks}")


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help="see `dial-lab list`")],
    *,
    policies: Annotated[
        list[str] | None, typer.Option("--policy", help="May be given several times.")
    ] = None,
    load: Annotated[
        float | None, typer.Option(help="Fraction of the total capacity during contention.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second instead.")] = None,
    severity: Annotated[
        float, typer.Option(help="Remaining capacity of the victim, 1 - rho_bg.")
    ] = DEFAULT_SEVERITY,
    seconds: Annotated[
        float | None, typer.Option(help="Contended seconds per policy; by scenario, mostly 45.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="How often every policy gets its turn.")] = 1,
    interval: Annotated[
        float | None, typer.Option(help="Tick of the controllers in seconds.")
    ] = None,
    percentile: Annotated[float, typer.Option(help="The x of T_x.")] = 90.0,
    seed: Annotated[int, typer.Option(help="Of arrivals and costs.")] = 7,
    lb: Annotated[str, typer.Option(help="haproxy or envoy")] = "haproxy",
    guest: Annotated[
        str, typer.Option(help="Whose kernel the tenants run under: shared, or uml (their own).")
    ] = "shared",
    tenant: Annotated[
        str, typer.Option("--app", help="What the tenants run: lab (its own), or apache.")
    ] = "lab",
    report_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report here.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep logs, recordings and a picture in this directory.")
    ] = None,
) -> None:
    """Run policies against each other on the same machines, with the same requests."""
    if name in INSIDE:
        if policies:
            raise LabError(f"--policy {policies[0]}: {name} has none; it compares managements")
        report = json.dumps({"scenario": name, **INSIDE[name][1](seconds or 45.0, seed)}, indent=1)
        if report_file is not None:
            report_file.write_text(report + "\n", encoding="utf-8")
        sys.stdout.write(report + "\n")
        return
    if lb not in BALANCERS:
        raise LabError(f"--lb {lb}: not supported; allowed: {', '.join(BALANCERS)}")
    request = Request(
        scenario=scenario(name),
        policies=tuple(policy(name, interval, lb) for name in policies or DEFAULT_POLICIES[lb]),
        load=DEFAULT_LOAD if load is None and rate is None else load,
        rate_per_s=rate,
        severity=severity,
        contended_s=scenario(name).contended_s if seconds is None else seconds,
        rounds=rounds,
        percentile=percentile,
        seed=seed,
        guest=guest,
        app=tenant,
    )
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        _perform(request, keep, report_file, keep / "timeline.png")
        return
    with tempfile.TemporaryDirectory(prefix="dial-lab-") as directory:
        _perform(request, Path(directory), report_file, None)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where results go.")] = Path("out/demo"),
    severity: Annotated[
        float, typer.Option(help="Remaining capacity of the victim.")
    ] = DEFAULT_SEVERITY,
) -> None:
    """Show the main job: a hidden neighbour comes and goes, round robin against DIAL."""
    request = Request(
        scenario=scenario("cpu"),
        policies=(policy("roundrobin"), policy("dial")),
        load=DEFAULT_LOAD,
        rate_per_s=None,
        severity=severity,
        contended_s=60.0,
        rounds=1,
        percentile=90.0,
        seed=7,
    )
    # Files of an earlier run would pass for this one's.
    shutil.rmtree(out / "run", ignore_errors=True)
    console = Console()
    console.print(
        f"Three emulated machines behind HAProxy. A hidden neighbour leaves the first one "
        f"{severity:.0%} of its CPU for 60 s, once with round robin, once with DIAL."
    )
    outcome = _perform(request, out / "run", out / "report.json", out / "timeline.png")
    shutil.copyfile(out / "run" / "1-dial" / "recording.jsonl", out / "recording.jsonl")
    console.print(f"picture    {out / 'timeline.png'}\nreport     {out / 'report.json'}")
    console.print(f"recording  {out / 'recording.jsonl'}  (dial replay {out / 'recording.jsonl'})")
    console.print(f"logs       {outcome.directory}")


def _perform(
    request: Request, directory: Path, report_file: Path | None, picture_file: Path | None
) -> Outcome:
    console = Console()
    directory.mkdir(parents=True, exist_ok=True)
    with View(console, request.percentile, MACHINES[0]) as view:
        outcome = execute(request, directory, view)
    console.print(table.build(outcome.report))
    if request.scenario.steps:
        console.print(table.isolation(outcome.report))
    if not outcome.report["generator_kept_up"]:
        console.print("the load generator was late: this computer is too busy for these figures")
    if report_file is not None:
        report_file.parent.mkdir(parents=True, exist_ok=True)
        report_file.write_text(json.dumps(outcome.report, indent=1) + "\n", encoding="utf-8")
    if picture_file is not None:
        picture.draw(outcome.report, outcome.blocks, picture_file)
    return outcome


def main() -> None:
    """Run the command line; an expected error is one line and exit code 2."""
    clean_up_when_told_to_end()
    try:
        # Typer turns Ctrl-C into a return value.
        code = app(standalone_mode=False)
    except TyperException as error:
        sys.stderr.write(f"dial-lab: {error.format_message()}\n")
        sys.exit(2)
    except DialError as error:
        sys.stderr.write(f"dial-lab: {' '.join(str(error).split())}\n")
        sys.exit(2)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        sys.stderr.write("dial-lab: interrupted, everything was removed\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
