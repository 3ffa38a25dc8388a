"""Every parser of what comes from outside, as a function of bytes.

A target feeds one parser and checks its contract.  Either it takes the input (``True``), and
what it made of it is sound; or it refuses it (``False``) with the one kind of error that is
documented, whose message says where and is one printable line, because it is read in a log or
a terminal.  Any other exception is a defect.

Hypothesis runs them (``test_fuzz``), and libFuzzer does (``run``); both begin with the real
outputs in ``seeds``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .haproxy import (
    adapter_options,
    compact,
    haproxy_cfg,
    httplog,
    show_info,
    show_servers,
    show_stat,
)
from .ours import agent_json, lease, model, recording, settings

Target = Callable[[bytes], bool]

TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        compact,
        httplog,
        show_info,
        show_servers,
        show_stat,
        haproxy_cfg,
        adapter_options,
        agent_json,
        model,
        settings,
        recording,
        lease,
    )
}

SEEDS = Path(__file__).parent / "seeds"


def seeds(name: str) -> dict[str, bytes]:
    """Kept inputs of a target by file name; those that it must refuse begin with ``refused-``."""
    return {path.name: path.read_bytes() for path in sorted((SEEDS / name).iterdir())}
