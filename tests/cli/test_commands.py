"""The subcommands: what they print, and what their exit codes say."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import structlog
from pydantic import TypeAdapter

from dial import __version__
from dial.adapter import Finding, Severity
from dial.cli import app as cli
from dial.cli import check, controller, replay
from dial.controller.replay import Mismatch, ReplayResult
from dial.controller.snapshot import Publisher, Snapshot
from dial.errors import BalancerUnreachable, RecordingError
from dial.service.views import State, state_of
from dial.settings import Settings
from dial.types import Mode, Orders

Dial = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "dial.toml"
    path.write_text('service = "web"\n[adapter]\nname = "fake"\n')
    return path


# ---------------------------------------------------------------- status, explain


def test_status_shows_a_row_per_backend(
    dial: Dial, url: str, publisher: Publisher, snapshot: Snapshot
) -> None:
    publisher.publish(snapshot)
    code, out, err = dial("status", "--url", url)
    assert (code, err) == (0, "")
    heading, action, columns, s1, s2, learnt, doubt = out.splitlines()
    assert heading == "web (fake), enforce, tick 7"
    assert action == "shift: s1 lost half of its CPU"
    headings = "backend rate/s T90 ms expected learnt verdict rho_bg weight share"
    assert " ".join(columns.split()) == headings
    # 31 intervals of 10 s.
    assert s1.split() == ["s1", "8.0", "40.0", "12.5", "5", "min", "cpu", "0.50", "100", "0.250"]
    # The name is shown as it is, not read as markup; what is absent is a dash.
    assert s2.split() == ["s[red]2", "0.0", "-", "-", "20", "s", "none", "-", "100", "0.750"]
    assert "what was there from the start is part of it" in learnt
    assert doubt.startswith("s1: its normal is 1.8 times its siblings'")


def test_status_says_since_when_the_weights_are_frozen(
    dial: Dial, url: str, publisher: Publisher, snapshot: Snapshot
) -> None:
    at_s = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
    for held_s, words in (
        (7500.0, "05:55:00 UTC (2 h)"),
        (2e5, "2027-01-13 00:26:40 UTC (2 days)"),
    ):
        orders = Orders(frozen_since_s=at_s - held_s)
        publisher.publish(replace(snapshot, mode=Mode.FROZEN, at_s=at_s, orders=orders))
        _, out, _ = dial("status", "--url", url)
        assert out.splitlines()[0] == f"web (fake), frozen since {words}, tick 7"
        _, out, _ = dial("status", "--json", "--url", url)
        assert json.loads(out)["frozen_since_s"] == at_s - held_s


def test_status_fits_into_a_terminal_of_80_columns(
    dial: Dial,
    url: str,
    publisher: Publisher,
    snapshot: Snapshot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher.publish(snapshot)
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = dial("status", "--url", url)
    columns = out.splitlines()[2]
    assert len(columns) <= 80
    assert columns.split()[-2:] == ["weight", "share"]


def test_an_older_controller_says_nothing_of_what_is_normal(
    dial: Dial, publisher: Publisher, snapshot: Snapshot, answering: Callable[[int, bytes], str]
) -> None:
    state = state_of(snapshot, version="0", percentile=90.0, interval_s=1.0)
    older = TypeAdapter(State).dump_python(state, mode="json")
    for backend in older["backends"]:
        del backend["baseline"]
    code, out, _ = dial("status", "--url", answering(200, json.dumps(older).encode()))
    assert code == 0
    assert "siblings" not in out


def test_status_json_is_the_services_answer(dial: Dial, url: str) -> None:
    code, out, _ = dial("status", "--json", "--url", url)
    assert code == 0
    assert json.loads(out)["service"] == "web"


def test_a_field_that_this_version_does_not_know_is_left_alone(
    dial: Dial, publisher: Publisher, snapshot: Snapshot, answering: Callable[[int, bytes], str]
) -> None:
    state = state_of(snapshot, version="9", percentile=90.0, interval_s=1.0)
    newer = TypeAdapter(State).dump_python(state, mode="json") | {"of_tomorrow": {"a": 1}}
    newer["backends"][0]["of_tomorrow"] = 2
    url = answering(200, json.dumps(newer).encode())
    code, out, err = dial("status", "--url", url)
    assert (code, err) == (0, "")
    assert "s1 " in out
    code, out, _ = dial("status", "--json", "--url", url)
    assert json.loads(out)["of_tomorrow"] == {"a": 1}


def test_a_controller_that_wants_a_token_is_sent_it(
    dial: Dial, answering: Callable[[int, bytes], str], tmp_path: Path
) -> None:
    url = answering(401, b"")
    code, out, err = dial("status", "--url", url)
    assert (code, out) == (2, "")
    assert "give --token-file" in err
    (tmp_path / "token").write_text("s3cret\n")
    dial("status", "--url", url, "--token-file", str(tmp_path / "token"))
    assert answering.authorizations == [None, "Bearer s3cret"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"two\nlines"])
def test_a_token_file_that_holds_none_is_one_line(
    dial: Dial, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    code, out, err = dial("status", "--token-file", str(tmp_path / "token"))
    assert (code, out) == (2, "")
    assert err.startswith(f"dial: --token-file {tmp_path}/token: ")


def test_status_says_when_no_backend_is_known(
    dial: Dial, url: str, publisher: Publisher, snapshot: Snapshot
) -> None:
    trouble = Snapshot("web", "fake", snapshot.mode, 0.0, 0.0, trouble="/run/x: no such file")
    publisher.publish(trouble)
    code, out, _ = dial("status", "--url", url)
    assert code == 0
    assert "trouble: /run/x: no such file" in out
    assert "no backend has been read" in out


def test_explain_gives_evidence_verdict_and_why_the_weight_is_what_it_is(
    dial: Dial, url: str, publisher: Publisher, snapshot: Snapshot
) -> None:
    publisher.publish(snapshot)
    code, out, _ = dial("explain", "s1", "--url", url)
    assert code == 0
    for line in (
        "  8.0 requests/s, 1 of 80 failed",
        "  T90 40.0 ms, over 79 requests",
        "  learnt from 5 min of quiet; what was there from the start is part of it",
        "Verdict: cpu",
        "  neighbour's use of it (rho_bg): 0.50",
        "  run-queue wait is up",
        "Weight 100 in force (configured: 90)",
        "  planned: 33, 25.0 % of the requests",
        "  shift: s1 lost half of its CPU",
        "  the last write of it failed: permission denied",
    ):
        assert line in out.splitlines()
    assert "  its normal is 1.8 times its siblings': a slower machine, or a neighbour" in out
    code, out, _ = dial("explain", "s[red]2", "--url", url)
    assert "its normal is" not in out
    assert "  T90 no data (no request in this tick), over 0 requests" in out.splitlines()


def test_explain_of_an_unknown_backend_names_those_there_are(
    dial: Dial, url: str, publisher: Publisher, snapshot: Snapshot
) -> None:
    publisher.publish(snapshot)
    code, out, err = dial("explain", "s9", "--url", url)
    assert (code, out) == (2, "")
    assert err == "dial: backend 's9': not known to the controller; there are: s1, s[red]2\n"


def test_nobody_listening_is_one_line_that_says_what_to_do(dial: Dial) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, out, err = dial("status", "--url", f"http://127.0.0.1:{port}")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"127.0.0.1:{port}" in err
    assert "is the controller running" in err


@pytest.mark.parametrize("path", ["/v1", "/metrics?"])
def test_something_else_that_answers_is_named(dial: Dial, url: str, path: str) -> None:
    code, _, err = dial("status", "--url", url + path)
    assert code == 2
    assert "controller" in err


@pytest.mark.parametrize("bad", ["127.0.0.1:9180", "http://[", "ftp://x", ""])
def test_a_url_that_is_none_is_one_line(dial: Dial, bad: str) -> None:
    code, _, err = dial("status", "--url", bad)
    assert code == 2
    assert err.startswith("dial: ")
    assert err.count("\n") == 1


# ---------------------------------------------------------------- completion


def completed(dial: Dial, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """What the shell is told could stand at the end of this line."""
    monkeypatch.setattr("sys.argv", ["dial"])
    monkeypatch.setenv("_DIAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    code, out, _ = dial()
    assert code == 0
    return out.split()


def test_the_shell_completes_commands_options_and_names_of_backends(
    dial: Dial,
    url: str,
    publisher: Publisher,
    snapshot: Snapshot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher.publish(snapshot)
    assert completed(dial, monkeypatch, "dial sta") == ["status"]
    assert completed(dial, monkeypatch, "dial check --di") == ["--diff"]
    monkeypatch.setenv("DIAL_URL", url)
    assert completed(dial, monkeypatch, "dial explain s1") == ["s1"]
    monkeypatch.setenv("DIAL_URL", "http://127.0.0.1:1")
    assert completed(dial, monkeypatch, "dial explain s") == []


# ---------------------------------------------------------------- check


class FakeAdapter:
    """Answers ``check`` with what it is given; the rest is not asked for."""

    def __init__(self, answer: tuple[Finding, ...] | Exception) -> None:
        self.answer = answer
        self.closed = False

    async def check(self) -> tuple[Finding, ...]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def aclose(self) -> None:
        self.closed = True


def install(monkeypatch: pytest.MonkeyPatch, adapter: FakeAdapter) -> None:
    def load(name: str) -> Callable[[str, Mapping[str, object]], FakeAdapter]:
        assert name == "fake"
        return lambda service, options: adapter

    monkeypatch.setattr(check, "load_adapter", load)


@pytest.mark.parametrize(
    ("severity", "code"), [(Severity.OK, 0), (Severity.WARNING, 0), (Severity.ERROR, 1)]
)
def test_check_prints_what_to_fix_and_fails_on_errors_only(
    dial: Dial, config: Path, monkeypatch: pytest.MonkeyPatch, severity: Severity, code: int
) -> None:
    adapter = FakeAdapter((Finding(severity, "no log target", "add: log ring@dial"),))
    install(monkeypatch, adapter)
    got, out, _ = dial("check", "--config", str(config))
    assert got == code
    assert "no log target\n         fix: add: log ring@dial" in out
    assert "no token is configured" in out
    assert adapter.closed


def test_check_of_a_balancer_that_does_not_answer_is_one_line(
    dial: Dial, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = FakeAdapter(BalancerUnreachable("options.socket = '/run/x': no such file"))
    install(monkeypatch, adapter)
    assert dial("check", "-c", str(config)) == (
        2,
        "",
        "dial: options.socket = '/run/x': no such file\n",
    )
    assert adapter.closed


def test_an_adapter_that_is_not_installed_is_named(
    dial: Dial, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.adapter.entry_points", lambda group: ())
    code, _, err = dial("check", "-c", str(config))
    assert code == 2
    assert "'fake': no such adapter; installed: none" in err


# ---------------------------------------------------------------- controller


def test_controller_runs_with_its_settings(
    dial: Dial, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def run(settings: Settings) -> None:
        seen.append(settings.service)
        await asyncio.sleep(0)

    monkeypatch.setattr("dial.controller.runtime.run", run)
    monkeypatch.setattr(controller, "set_up_logging", lambda *_, **__: None)
    assert dial("controller", "--config", str(config)) == (0, "", "")
    assert seen == ["web"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("service = ", "not TOML"),
        ('service = "web"\n', "adapter"),
        ('service = "web"\ninterval_s = -1\n[adapter]\nname = "fake"\n', "interval_s = -1"),
        ('service = "web"\nmoed = "enforce"\n[adapter]\nname = "fake"\n', "moed"),
        ('service = "web"\n[adapter]\nname = "fake"\n[api]\nhost = "0.0.0.0"\n', "api.host"),
    ],
)
def test_a_bad_configuration_is_one_line_with_file_or_setting(
    dial: Dial, config: Path, text: str, named: str
) -> None:
    config.write_text(text)
    for command in ("controller", "check"):
        code, out, err = dial(command, "--config", str(config))
        assert (code, out) == (2, "")
        assert named in err
        assert err.count("\n") == 1


def test_a_missing_file_is_one_line(dial: Dial, tmp_path: Path) -> None:
    code, _, err = dial("controller", "--config", str(tmp_path / "none.toml"))
    assert code == 2
    assert err == f"dial: {tmp_path}/none.toml: No such file or directory\n"


# ---------------------------------------------------------------- replay


def test_replay_of_the_same_plans_is_0_with_their_number(
    dial: Dial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def same(path: Path, progress: Callable[[int], None]) -> ReplayResult:
        for tick in range(1, 2001):
            progress(tick)
        return ReplayResult(2000, (), truncated=False)

    monkeypatch.setattr(replay, "replay", same)
    code, out, _ = dial("replay", str(tmp_path / "x.jsonl"))
    assert (code, out) == (0, "2000 ticks replayed: every plan is the same\n")


def test_replay_of_other_plans_is_1_and_shows_the_first(
    dial: Dial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    many = tuple(Mismatch(t, "weights", "100", "99") for t in range(25))
    monkeypatch.setattr(replay, "replay", lambda *_: ReplayResult(30, many, truncated=True))
    code, out, _ = dial("replay", str(tmp_path / "x.jsonl"))
    assert code == 1
    assert out.startswith("tick 0: weights\n  recorded 100\n  replayed 99\n")
    assert "... and 5 more" in out
    assert "cut short" in out
    assert out.endswith("30 ticks replayed: 25 differ\n")


def test_replay_of_something_else_is_2(
    dial: Dial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> ReplayResult:
        raise RecordingError("x.jsonl: line 1: not a recording")

    monkeypatch.setattr(replay, "replay", fail)
    code, _, err = dial("replay", str(tmp_path / "x.jsonl"))
    assert (code, err) == (2, "dial: x.jsonl: line 1: not a recording\n")


# ---------------------------------------------------------------- the whole


def test_version_and_usage(dial: Dial) -> None:
    assert dial("--version") == (0, f"dial {__version__}\n", "")
    assert dial("nothing")[0] == 2
    assert dial("status", "--nothing")[0] == 2


def test_help_lists_every_command_and_the_exit_codes(dial: Dial) -> None:
    code, out, _ = dial("--help")
    assert code == 0
    for name in cli.BUILT_IN:
        assert f" {name} " in out
    assert "Exit codes: 0" in out


@pytest.mark.parametrize("name", sorted(cli.BUILT_IN.keys() - {"agent"}))
def test_every_command_has_help_of_its_own(dial: Dial, name: str) -> None:
    code, out, _ = dial(name, "--help")
    assert code == 0
    assert f"dial {name}" in out


GROUP = "dial.commands"
MODULE = """
import typer
app = typer.Typer()

@app.command()
def fit(name: str) -> None:
    "Fit a model."
    typer.echo(f"fitted {name}")

@app.command()
def show() -> None:
    "Show a model."

def plain(number: int) -> None:
    "Add one."
    typer.echo(number + 1)
"""


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_dist.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    entries = [
        EntryPoint("train", "other_dist:app", GROUP),
        EntryPoint("plain", "other_dist:plain", GROUP),
        EntryPoint("broken", "no_such_module:app", GROUP),
        EntryPoint("status", "other_dist:plain", GROUP),
    ]
    monkeypatch.setattr(cli, "entry_points", lambda group: entries)


@pytest.mark.usefixtures("others")
def test_commands_of_other_distributions_join(dial: Dial) -> None:
    assert dial("train", "fit", "tree")[:2] == (0, "fitted tree\n")
    assert dial("plain", "41")[:2] == (0, "42\n")


@pytest.mark.usefixtures("others")
def test_a_broken_one_is_reported_and_breaks_only_itself(dial: Dial, url: str) -> None:
    code, out, err = dial("--help")
    assert code == 0
    assert " train " in out
    assert "Cannot be used" in out
    assert "command 'broken' of no_such_module:app is left out: ModuleNotFoundError" in err
    code, _, err = dial("broken")
    assert code == 2
    assert "cannot be loaded" in err
    code, out, err = dial("status", "--url", url)
    assert code == 0
    assert "broken" not in err  # it was not even imported
    assert "its name is one of dial's own" in err


# ---------------------------------------------------------------- restore what runs change


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
