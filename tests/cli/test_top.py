"""``dial top``: what it draws in a terminal of 80 columns, and how it ends."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dial.cli.top import Feed, View, picture, watch
from dial.controller.snapshot import Publisher, Snapshot
from dial.errors import DialError
from dial.service.views import State, state_of
from dial.types import Cause

WIDTH, HEIGHT = 80, 24
WITHIN_S = 30.0

Dial = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(snapshot: Snapshot) -> State:
    return state_of(snapshot, version="1", percentile=90.0, interval_s=1.0)


def fleet(state: State, size: int) -> State:
    """That many backends, of which the last one is slow."""
    s1, idle = state.backends
    others = [replace(idle, name=f"frankfurt-web-{number:03}") for number in range(1, size)]
    return replace(state, backends=(*others, s1))


def drawn(view: View, page: int = 0, height: int = HEIGHT) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=WIDTH, height=height, color_system=None)
    console.print(picture(view, page, WIDTH, height))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_backends_are_rows_and_the_slow_ones_come_first(state: State) -> None:
    heading, plan, trouble, columns, s1, s2, s3, keys = drawn(View(fleet(state, 3)))
    assert heading == "web (fake), enforce, tick 7, 3 backends, 1 slow"
    assert plan == "shift: s1 lost half of its CPU"
    assert trouble == ""
    headings = "backend rate/s T90 ms expected verdict rho_bg weight share"
    assert " ".join(columns.split()) == headings
    assert s1.split() == ["s1", "8.0", "40.0", "12.5", "cpu", "0.50", "100", "0.250"]
    assert [s2.split()[0], s3.split()[0]] == ["frankfurt-web-001", "frankfurt-web-002"]
    assert keys == "q quits"


@pytest.mark.parametrize("page", [0, 1, 26])
def test_500_backends_fill_the_terminal_page_by_page(state: State, page: int) -> None:
    # 24 lines less the 5 around them are 19 backends; 500 are 26 pages of 19 and one of 6.
    lines = drawn(View(fleet(state, 500)), page)
    shown = 19 if page < 26 else 6
    assert len(lines) == shown + 5 <= HEIGHT
    assert max(map(len, lines)) <= WIDTH
    assert lines[-1].endswith(f"{19 * page + 1} to {19 * page + shown} of 500")
    assert (lines[4].split()[0] == "s1") is (page == 0)


def test_long_names_and_reasons_are_cut_and_the_numbers_stay(state: State) -> None:
    names = [f"a-name-of-somebody-who-had-much-to-say-about-it-{end}" for end in ("x", "y")]
    long = replace(
        state,
        service="a service " * 20,
        reason="for reasons " * 20,
        trouble="trouble " * 20,
        backends=tuple(
            replace(row, name=name, rate_per_s=12345.6, cause=Cause.SELF_LIMITED)
            for row, name in zip(state.backends, names, strict=True)
        ),
    )
    lines = drawn(View(long))
    assert max(map(len, lines)) <= WIDTH
    x, y = lines[4:6]
    assert x.split()[1] == "12345.6"
    assert x.split()[0].endswith("-x")
    assert y.split()[0].endswith("-y")
    assert x.split()[-1] == "0.250"


def test_a_terminal_of_a_few_lines_shows_a_backend_a_page(state: State) -> None:
    assert drawn(View(fleet(state, 3)), page=1, height=3)[4].split()[0] == "frankfurt-web-001"


def test_before_a_backend_is_known_that_is_said(snapshot: Snapshot) -> None:
    empty = replace(snapshot, observation=None, plan=None, trouble="/run/x: no such file")
    state = state_of(empty, version="1", percentile=90.0, interval_s=1.0)
    assert drawn(View(state))[1:4] == [
        "no plan yet",
        "/run/x: no such file",
        "no backend has been read yet",
    ]


class Deaf(Feed):
    """Asks nobody."""

    def __init__(self, view: View) -> None:
        self.view = view


def typed(*keys: str) -> Callable[[float], str]:
    waiting: Iterator[str] = iter(keys)
    return lambda _: next(waiting)


def test_keys_turn_pages_within_their_number_and_quit(state: State) -> None:
    file = io.StringIO()
    console = Console(file=file, width=WIDTH, height=HEIGHT, color_system=None, force_terminal=True)
    watch(console, Deaf(View(fleet(state, 40))), typed("p", "n", "", "n", "n", "p", "x", "q"))
    # Of 40, page 1 is 1 to 19, page 2 20 to 38, page 3 39 to 40.
    pages = [part.split(" of 40")[0] for part in file.getvalue().split("back   ")[1:]]
    first, second, third = "1 to 19", "20 to 38", "39 to 40"
    assert pages[:8] == [first, first, second, second, third, third, second, second]


def test_a_controller_that_falls_silent_leaves_what_was_last_heard(state: State) -> None:
    asked = threading.Event()
    answers = iter([state, DialError("no answer")])

    def ask() -> State:
        answer = next(answers, None)
        if answer is None:
            asked.set()
            raise DialError("no answer")
        if isinstance(answer, DialError):
            raise answer
        return answer

    feed = Feed(ask, 0.001, View(replace(state, service="first")))
    assert asked.wait(WITHIN_S)
    feed.stop()
    assert feed.view == View(state, silent="no answer")
    assert drawn(feed.view)[2] == "no answer"


def test_output_that_is_no_terminal_is_told_what_to_use_instead(dial: Dial, url: str) -> None:
    code, out, err = dial("top", "--url", url)
    assert (code, out) == (2, "")
    assert "dial status --json" in err


# ---------------------------------------------------------------- in a real terminal


def in_a_terminal(url: str, act: Callable[[int, subprocess.Popen[bytes]], None]) -> tuple[int, str]:
    """Run ``dial top`` in a terminal, and act once it says how to quit."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [Path(sys.executable).with_name("dial"), "top", "--url", url],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    shown, acted = "", False
    try:
        while select.select([ours], [], [], WITHIN_S)[0]:
            try:
                shown += os.read(ours, 65_536).decode()
            except OSError:  # it has closed its end
                return process.wait(WITHIN_S), shown
            if not acted and "q quits" in shown:
                acted = True
                act(ours, process)
        raise AssertionError(f"nothing for {WITHIN_S:g} s after: {shown!r}")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.parametrize("how", ["q", "Ctrl-C"])
def test_q_and_ctrl_c_end_it_and_leave_the_terminal_as_it_was(
    url: str, publisher: Publisher, snapshot: Snapshot, how: str
) -> None:
    publisher.publish(snapshot)

    def act(terminal: int, process: subprocess.Popen[bytes]) -> None:
        if how == "q":
            os.write(terminal, b"q")
        else:
            process.send_signal(signal.SIGINT)

    code, shown = in_a_terminal(url, act)
    assert code == 0, shown
    assert "web (fake), enforce, tick 7, 2 backends, 1 slow" in shown
    # The alternate screen is left, the cursor is shown again, and no colour was used.
    assert shown.index("\x1b[?1049h") < shown.index("\x1b[?1049l")
    assert "\x1b[?25h" in shown
    assert "\x1b[3" not in shown
