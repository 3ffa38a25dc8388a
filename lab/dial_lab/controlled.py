"""A controller and its agents, as a tenant would run them, for one block."""

from __future__ import annotations

import json
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from dial.errors import LabError
from dial.types import Mode
from dial_lab.guests import Guest
from dial_lab.haproxy import SERVICE
from dial_lab.policies import Policy
from dial_lab.processes import Children
from dial_lab.tenant import page_of
from dial_lab.topology import Machine

DIAL = Path(sys.executable).with_name("dial")

_YIELDING = ("nice", "-n", "5")
"""As the units in deploy/systemd start controllers and agents: the balancer and the application
come first."""

_START_WAIT_S = 20.0

_RESUME_S = 86_400.0
"""Age of what is remembered, at most: blocks go on for longer than a service may be without us."""

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Control:
    """Where one controller is reached and what it leaves behind."""

    api_port: int
    recording: Path
    config: Path
    token_file: Path
    api_host: str = LOOPBACK

    @property
    def url(self) -> str:
        """Of the API, for agents and for us."""
        return f"http://{self.api_host}:{self.api_port}"


def prepare(
    directory: Path,
    secret_directory: Path,
    api_port: int,
    api_host: str = LOOPBACK,
) -> Control:
    """Choose the files of one controller, and make its token."""
    token_file = secret_directory / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(secrets.token_urlsafe(32), encoding="ascii")
    return Control(
        api_port,
        directory / "recording.jsonl",
        directory / "dial.toml",
        token_file,
        api_host,
    )


def controller_config(
    control: Control,
    adapter: str,
    interval_s: float,
    percentile: float,
    *,
    mode: Mode = Mode.ENFORCE,
    settings: str = "",
    memory: Path | None = None,
) -> str:
    """The controller's configuration file.

    Parameters
    ----------
    control
        Its files and where it is reached.
    adapter
        The ``[adapter]`` table.
    interval_s, percentile, mode
        As settings of these names.
    settings
        Further tables.
    memory
        Directory in which it keeps what it learns for the next one, if it is to.
    """
    # A JSON string is a TOML basic string too, with the same escapes.
    quoted = {
        "token": json.dumps(str(control.token_file)),
        "record": json.dumps(str(control.recording)),
    }
    lease = ""
    if memory:
        lease = f"[lease]\npath = {json.dumps(str(memory / 'lease'))}\nresume_s = {_RESUME_S!r}\n"
    return f"""\
service = "{SERVICE}"
mode = "{mode}"
percentile = {percentile!r}
interval_s = {interval_s!r}

{adapter}
[api]
host = "{control.api_host}"
port = {control.api_port}
token_file = {quoted["token"]}

[record]
path = {quoted["record"]}

{lease}
{settings}"""


def start(
    children: Children,
    policy: Policy,
    control: Control,
    adapter: str,
    *,
    machines: Sequence[Machine],
    cores: tuple[int, ...],
    percentile: float,
    guests: Mapping[str, Guest] = MappingProxyType({}),
    memory: Path | None = None,
) -> None:
    """Start the controller and an agent in each VM; ``guests`` are VMs with their own kernel.

    ``memory`` is where the controller keeps what it learns, if it is to; ``adapter`` is the
    ``[adapter]`` table by which it finds its balancer.

    Raises
    ------
    LabError
        If one of them ends, or the controller does not come up in twenty seconds.
    """
    if policy.interval_s is None:
        raise LabError(f"policy {policy.name} has no controller")
    if not DIAL.exists():
        raise LabError(f"{DIAL}: not installed; `make setup` installs it")
    control.config.write_text(
        controller_config(
            control,
            adapter,
            policy.interval_s,
            percentile,
            mode=policy.mode,
            settings=policy.settings,
            memory=memory,
        ),
        encoding="utf-8",
    )
    children.start(
        "controller",
        [*_YIELDING, str(DIAL), "controller", "--config", str(control.config)],
        cores=cores,
    )
    # An agent that knocks before anybody is at home backs off, and comes late.
    _await(children, lambda: _get(f"{control.url}/healthz") is not None, "the controller's API")
    for machine in machines:
        guest = guests.get(machine.name)
        children.start(
            f"agent-{machine.name}",
            [
                *(guest.enter if guest is not None else ()),
                *(*_YIELDING, str(DIAL), "agent", "--controller", control.url),
                *("--backend", machine.name),
                *("--token-file", str(control.token_file)),
                *("--cpu-capacity-cores", f"{machine.usual_cores:.4g}"),
                *(("--scope", "vm") if guest is not None else ("--cgroup", machine.fg)),
                *("--pbox-page", str(page_of(machine))),
                *(("--memory-probe", "on") if policy.memory_probe else ()),
            ],
            cores=[machine.core],
            join=machine.tenant_files(),
        )


def await_samples(children: Children, control: Control, interval_s: float) -> None:
    """Wait until the controller has a sample of every agent.

    Raises
    ------
    LabError
        If it has not, an interval and twenty seconds from now; says of whom.
    """
    url = f"{control.url}/v1/state"

    def complete() -> bool:
        state = _get(url)
        if not isinstance(state, dict) or state.get("tick") is None:
            return False
        return all(backend["agent"] is None for backend in state["backends"])

    _await(children, complete, "samples of every agent", _START_WAIT_S + 2 * interval_s)


def _await(
    children: Children, done: Callable[[], bool], what: str, wait_s: float = _START_WAIT_S
) -> None:
    give_up = time.monotonic() + wait_s
    while not done():
        children.check()
        if time.monotonic() > give_up:
            raise LabError(f"{what}: nothing after {wait_s:g} s; logs are in {children.log_dir}")
        time.sleep(0.1)


def _get(url: str) -> object:
    """The JSON answer of the controller, or ``None`` when it gives none yet."""
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:  # noqa: S310 - http, loopback
            return json.load(answer)
    except (OSError, urllib.error.URLError, ValueError):
        return None
