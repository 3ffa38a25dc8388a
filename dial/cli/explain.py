"""``dial explain``: why a backend has the weight it has, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from dial.cli.client import Reach, fetch_state
from dial.cli.client import explain as value
from dial.cli.options import DEFAULT_URL, CaFile, CertFile, KeyFile, TokenFile, Url
from dial.cli.table import doubt, duration
from dial.errors import DialError, SettingError
from dial.service.views import BackendState, State
from dial.types import Cause, Mode, NoData


def _backends(context: typer.Context, incomplete: str) -> list[str]:
    """Names for the shell to offer; none where nobody can be asked."""
    try:
        state, _ = fetch_state(Reach(context.params.get("url") or DEFAULT_URL))
    except DialError:
        return []
    return [b.name for b in state.backends if b.name.startswith(incomplete)]


def command(
    backend: Annotated[
        str, typer.Argument(help="Name at the load balancer.", autocompletion=_backends)
    ],
    *,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
) -> None:
    """Say what was seen of a backend, what is held of it, and what follows."""
    state, _ = fetch_state(Reach(url, token_file, ca_file, cert_file, key_file))
    found = next((b for b in state.backends if b.name == backend), None)
    if found is None:
        there = ", ".join(b.name for b in state.backends) or state.trouble or "none read yet"
        raise SettingError(f"backend {backend!r}: not known to the controller; there are: {there}")
    for line in _lines(state, found):
        typer.echo(line)


def _lines(state: State, backend: BackendState) -> Iterator[str]:
    yield f"{backend.name} of {state.service}, tick {state.tick}"
    yield ""
    yield "Seen"
    yield f"  {backend.rate_per_s:.1f} requests/s, {backend.errors} of {backend.requests} failed"
    t_x = value(backend.t_x_ms, "ms", 1)
    yield f"  T{state.percentile:g} {t_x}, over {backend.t_x_requests} requests"
    yield f"  expected at most {value(backend.expected_t_x_ms, 'ms', 1)}"
    if backend.baseline is not None:
        age = duration(backend.baseline.age_s)
        yield f"  learnt from {age} of quiet; what was there from the start is part of it"
        if backend.baseline.doubtful:
            yield f"  {doubt(backend.baseline)}"
    if not backend.usable:
        yield "  down, drained or in maintenance at the load balancer"
    if backend.agent is not None:
        yield f"  no sample of its agent ({backend.agent})"
    yield ""
    yield f"Verdict: {backend.cause or 'none yet'}"
    yield f"  own use of the resource (rho_fg): {value(backend.rho_fg)}"
    yield f"  neighbour's use of it (rho_bg): {value(backend.rho_bg)}"
    yield f"  peak throughput alone: {value(backend.peak_rps, 'requests/s', 1)}"
    for line in backend.evidence:
        yield f"  {line}"
    if backend.cause is Cause.UNKNOWN and backend.agent is not None:
        yield f"  to learn why: `dial agent --backend {backend.name}` on its VM"
    yield ""
    yield f"Weight {backend.weight} in force (configured: {backend.weight_configured})"
    if state.action is not None and backend.weight_planned is not None:
        share = backend.share
        part = "" if isinstance(share, NoData) else f", {100 * share:.1f} % of the requests"
        yield f"  planned: {backend.weight_planned}{part}"
        yield f"  {state.action}: {state.reason}"
    if state.mode is Mode.SHADOW:
        yield "  shadow mode: plans are shown, never written"
    if state.trouble:
        yield f"  the last tick made no plan: {state.trouble}"
    failures = dict(state.report.failures) if state.report else {}
    if backend.name in failures:
        yield f"  the last write of it failed: {failures[backend.name]}"
