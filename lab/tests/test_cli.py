"""What the command line refuses, in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dial.errors import LabError
from dial_lab import cli, topology
from dial_lab.reaction import Phases
from dial_lab.request import Request
from dial_lab.scenarios import scenario


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["dial-lab", *words])
    monkeypatch.setattr(cli, "clean_up_when_told_to_end", lambda: None)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "quake"], "scenario quake: no such scenario; allowed: none, cpu, "),
        (["run", "cpu", "--lb", "nginx"], "--lb nginx: not supported; allowed: haproxy, envoy"),
        (
            ["run", "cpu", "--lb", "envoy", "--policy", "leastconn"],
            "--policy leastconn: no such policy of Envoy; allowed: roundrobin, leastrequest, ",
        ),
        (["run", "cpu", "--guest", "kvm"], "--guest kvm: no such kind; allowed: shared, uml"),
        (
            ["run", "cpu", "--app", "nginx"],
            "--app nginx: no such application; allowed: lab, apache",
        ),
        (
            ["run", "net", "--app", "apache"],
            "--app apache: not with --guest shared and scenario net",
        ),
        (["run", "net", "--guest", "uml"], "--guest uml: not with scenario net; allowed: none, "),
        (["run", "cpu", "--policy", "best"], "--policy best: no such policy of HAProxy; allowed: "),
        (["run", "cpu", "--load", "9"], "--load 9: allowed is 0.01 to 2"),
        (["run", "cpu", "--severity", "0"], "--severity 0: allowed is 0.05 to 0.95"),
        (["run", "cpu", "--severity", "nan"], "--severity nan: allowed is 0.05 to 0.95"),
        (["run", "cpu", "--load", "0.4", "--rate", "9"], "--load and --rate: give one of them"),
        (["run", "cpu", "--policy", "dial", "--policy", "dial"], "each may be given once"),
        (["run", "cpu", "--seconds", "soon"], "--seconds"),
        (["run", "cpu", "--secnds", "5"], "No such option: --secnds"),
        ([], "Missing command"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(monkeypatch, *words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_without_root_the_lab_says_that_it_needs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert command(monkeypatch, "run", "cpu", "--policy", "roundrobin") == 2
    assert "needs root" in capsys.readouterr().err


def test_second_lab_is_refused_and_told_who_holds_the_computer(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        topology.exclusive(lock),
        pytest.raises(LabError, match=rf"another lab \(process {os.getpid()}\) runs"),
        topology.exclusive(lock),
    ):
        pass
    with topology.exclusive(lock):  # and is free again afterwards
        pass


def request_of(**more: Any) -> Request:
    return Request(
        scenario=scenario("cpu"),
        policies=(cli.policy("roundrobin"), cli.policy("dial-paper")),
        load=0.45,
        rate_per_s=None,
        severity=0.5,
        contended_s=60.0,
        rounds=1,
        percentile=90.0,
        seed=7,
        **more,
    )


def test_quiet_phase_is_long_enough_for_the_slowest_controller_to_learn() -> None:
    assert request_of().phases.quiet_s == 90.0  # nine intervals of 10 s


def test_where_controllers_learn_once_a_block_is_its_contended_phase() -> None:
    assert request_of(learn_once=True).phases == Phases(0.0, 60.0, 0.0)
