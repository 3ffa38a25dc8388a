"""``dial top``: the same as ``dial status``, live, with the slow backends first.

A thread asks the controller, so that keys are answered while it does not.  The picture is
a function of what was last heard, the page and the terminal's size; it needs neither
colour nor more than 80 columns.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from dial.cli.client import Reach, fetch_state
from dial.cli.options import DEFAULT_URL, CaFile, CertFile, KeyFile, TokenFile, Url
from dial.cli.table import heading, is_slow, table
from dial.errors import DialError, SettingError
from dial.service.views import State

LOOK_S = 0.2
"""Between two looks at the keys and at what the controller said: it feels immediate."""

AROUND = 5
"""Lines of the picture that are no backends: heading, plan, trouble, columns, keys."""

NEXT_KEYS = (" ", "n", "j", "\x1b[6~", "\x1b[B")
BACK_KEYS = ("p", "k", "\x1b[5~", "\x1b[A")
QUIT_KEYS = ("q", "Q", "\x04")


def command(
    *,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two questions.")
    ] = 1.0,
) -> None:
    """Show a running controller live; q quits."""
    console = Console(highlight=False)
    if not console.is_terminal:
        raise SettingError(
            "top needs a terminal; `dial status` prints once, `dial status --json` for programs"
        )
    reach = Reach(url, token_file, ca_file, cert_file, key_file)
    first, _ = fetch_state(reach)  # what is wrong from the beginning is an error
    feed = Feed(lambda: fetch_state(reach)[0], interval, View(first))
    with _keys() as read_key:
        try:
            watch(console, feed, read_key)
        except KeyboardInterrupt:
            return
        finally:
            feed.stop()


@dataclass(frozen=True, slots=True)
class View:
    """What is known of the controller."""

    state: State
    silent: str | None = None
    """Why the last question got no answer; the state is then an earlier one."""


class Feed:
    """Asks again and again, in a thread of its own; ``view`` is what was last heard."""

    def __init__(self, ask: Callable[[], State], every_s: float, first: View) -> None:
        self.view = first
        self._ask = ask
        self._every_s = every_s
        self._stopped = threading.Event()
        # A daemon: a question that hangs must not keep the command from ending.
        threading.Thread(target=self._run, name="feed", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self.view = View(self._ask())
            except DialError as error:
                self.view = replace(self.view, silent=str(error))


def watch(console: Console, feed: Feed, read_key: Callable[[float], str]) -> None:
    """Draw until a key says to quit; ``read_key`` waits for one as long as it is told."""
    page = 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            view, (width, height) = feed.view, console.size
            page = max(0, min(page, _pages(view.state, height) - 1))
            live.update(picture(view, page, width, height), refresh=True)
            key = read_key(LOOK_S)
            if key in QUIT_KEYS:
                return
            page += (key in NEXT_KEYS) - (key in BACK_KEYS)


def picture(view: View, page: int, width: int, height: int) -> RenderableType:
    """What is shown of a terminal's page: at most ``height`` lines of ``width`` columns."""
    state = view.state
    rows = sorted(state.backends, key=lambda b: (not is_slow(b), b.usable))
    room = _room(height)
    shown = rows[page * room : (page + 1) * room]
    slow = sum(map(is_slow, rows))
    title = heading(state).append(f", {len(rows)} backends, {slow} slow")
    plan = f"{state.action}: {state.reason}" if state.action else "no plan yet"
    trouble = view.silent or state.trouble or ""
    keys = "q quits"
    if len(rows) > room:
        first = page * room + 1
        keys += f"   n next, p back   {first} to {first + len(shown) - 1} of {len(rows)}"
    lines = [title, Text(plan), Text(trouble, style="red")]
    for line in (*lines, footer := Text(keys, style="dim")):
        line.truncate(width, overflow="ellipsis")
    body = table(state, shown, width) if rows else Text("no backend has been read yet")
    return Group(*lines, body, footer)


def _room(height: int) -> int:
    return max(1, height - AROUND)


def _pages(state: State, height: int) -> int:
    return -(-len(state.backends) // _room(height))


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Keys as they are typed, without an echo; ``""`` where none came, or none can."""
    if not sys.stdin.isatty():
        never = threading.Event()

        def no_key(timeout_s: float) -> str:
            never.wait(timeout_s)
            return ""

        yield no_key
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read_key(timeout_s: float) -> str:
        ready, _, _ = select.select([terminal], [], [], timeout_s)
        # A key such as Page Down is several bytes, which come at once.
        return os.read(terminal, 16).decode(errors="replace") if ready else ""

    tty.setcbreak(terminal)
    try:
        yield read_key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
