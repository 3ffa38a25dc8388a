from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dial.agent import main
from dial.agent.options import read_options, read_token
from dial.errors import SettingError
from dial.types import METRIC_NAMES

NEEDED = ["--controller", "http://127.0.0.1:1", "--backend", "s1"]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "--controller and --backend"),
        ([*NEEDED, "--interval-s", "0"], "--interval-s 0.0"),
        ([*NEEDED, "--interval-s", "nan"], "0.1 to 60"),
        ([*NEEDED, "--cpu-capacity-cores", "inf"], "more than 0"),
        ([*NEEDED, "--buffer", "0"], "--buffer 0"),
        ([*NEEDED, "--memory-probe", "maybe"], "--memory-probe"),
        ([*NEEDED, "--pid", "0"], "--pid 0"),
        ([*NEEDED, "--scope", "cgroup"], "needs --cgroup"),
        ([*NEEDED, "--scope", "vm", "--cgroup", "m"], "not allowed with --scope vm"),
        ([*NEEDED, "--cgroup", "../x"], "a path such as"),
        ([*NEEDED, "--cgroup", "/"], "a path such as"),
        ([*NEEDED, "--pbox-page", "x.page"], "an absolute path"),
        ([*NEEDED, "--pbox-page", "/x", "--postgres", "dbname=x"], "one application"),
        ([*NEEDED, "--pbox-owner", "root"], "needs --pbox-page"),
        ([*NEEDED, "--pbox-page", "/x", "--pbox-owner", "no such"], "no such user"),
        ([*NEEDED, "--partition-dry-run"], "needs --partition"),
        ([*NEEDED, "--partition", "/nowhere"], "--partition /nowhere: [Errno 2]"),
        ([*NEEDED, "--net-charge-quotas", "/nowhere"], "--net-charge-quotas /nowhere: [Errno 2]"),
        ([*NEEDED, "--partition", "x", "--net-charge-quotas", "x"], "both write quotas"),
        ([*NEEDED, "--postgres", "dbname=x password=y"], "holds a password"),
        (["--controller", "nowhere", "--backend", "s1"], "'nowhere'"),
        (NEEDED, "DIAL_TOKEN: no token"),
        ([*NEEDED, "--token-file", "/nowhere"], "--token-file /nowhere: No such file"),
        ([*NEEDED, "--token", "x"], "unrecognized"),
    ],
)
def test_bad_usage_exits_2_and_names_the_option(
    argv: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DIAL_TOKEN", raising=False)
    assert main(argv) == 2
    assert told in capsys.readouterr().err


def test_help_exits_0_and_never_offers_the_token_as_an_argument(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    assert "--token " not in capsys.readouterr().out


def test_a_cgroup_name_alone_selects_its_scope() -> None:
    assert read_options([*NEEDED, "--cgroup", "machines/m1"]).cgroup == "machines/m1"


def test_the_token_file_comes_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert read_token(str(file), {"DIAL_TOKEN": "from-env"}) == "from-file"
    assert read_token(None, {"DIAL_TOKEN": "from-env"}) == "from-env"


@pytest.mark.parametrize("token", ["two\nlines", "a b", "caf\u00e9", "tab\there"])
def test_a_token_no_header_can_carry_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(SettingError) as error:
        read_token(None, {"DIAL_TOKEN": token})
    assert token not in str(error.value)


def test_once_prints_one_sample_with_all_metrics() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dial.agent", "--once", "--interval-s", "0.1"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    sample = json.loads(done.stdout)
    assert set(sample) == {"at_s", "interval_s", "metrics", "top_resource"}
    assert tuple(sample["metrics"]) == METRIC_NAMES
    assert sample["metrics"]["agent_rss_mib"] > 1.0


@contextmanager
def pushing_agent() -> Iterator[subprocess.Popen[str]]:
    """An agent in the midst of pushing to a controller that gives no answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        agent = subprocess.Popen(
            [
                *(sys.executable, "-m", "dial.agent", "--interval-s", "0.1", "--backend", "s1"),
                *("--controller", f"http://127.0.0.1:{server.getsockname()[1]}"),
            ],
            env=os.environ | {"DIAL_TOKEN": "s3cret"},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            peer, _ = server.accept()
            with peer:
                yield agent
        finally:
            agent.kill()
            agent.wait()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_agent_with_0_while_the_controller_hangs(ending: signal.Signals) -> None:
    with pushing_agent() as agent:
        agent.send_signal(ending)
        # The client's own timeout is 5 s: an agent that waited for it would be late,
        # but the assertion is on how it ended, not on when.
        _, told = agent.communicate(timeout=30)
    assert agent.returncode == 0
    assert "agent ends: 0 samples delivered" in told
    assert "s3cret" not in told


def test_an_agent_that_was_stopped_and_continued_goes_on() -> None:
    with pushing_agent() as agent:
        agent.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, agent.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(0.3)  # past the end of the wait between two samples
        agent.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            agent.wait(1.0)
        agent.terminate()
        _, told = agent.communicate(timeout=30)
    assert agent.returncode == 0
    assert "agent ends" in told


def test_the_agent_imports_nothing_heavy() -> None:
    code = (
        "import sys, dial.agent; "
        "heavy = {'numpy', 'asyncio', 'typer', 'pydantic', 'psutil', 'dial.agent.nats'}; "
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_memory_is_probed_only_where_that_is_asked_for() -> None:
    def memory_reload_ns(*asked: str) -> float | dict[str, str]:
        argv = [sys.executable, "-m", "dial.agent", "--once", "--interval-s", "0.1", *asked]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        found: float | dict[str, str] = json.loads(done.stdout)["metrics"]["memory_reload_ns"]
        return found

    not_asked = {"no_data": "--memory-probe on is not given"}
    assert memory_reload_ns() == not_asked
    assert memory_reload_ns("--memory-probe", "on") != not_asked
