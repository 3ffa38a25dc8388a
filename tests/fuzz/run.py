"""Longer runs of the fuzz targets with libFuzzer, which looks for inputs that reach new code.

    python -m tests.fuzz.run                              # all targets, a minute each
    python -m tests.fuzz.run recording --seconds 3600

A run begins with the kept seeds and with what earlier runs found worth keeping
(``out/fuzz/corpus``).  An input that breaks a contract, takes longer than 10 s or more than
2 GB is written to ``out/fuzz/found/TARGET-...``; libFuzzer's own words and the traceback are in
``out/fuzz/TARGET.log``.  After the parser is mended, the input is kept under
``tests/fuzz/seeds/TARGET``, named for what it is, and begins with ``refused-`` where that is
what the parser must do.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .mutations import WORDS
from .targets import SEEDS, TARGETS

MAX_INPUT_BYTES = 65_536
"""Four lines of a log of the largest length; the largest real output has a quarter of it."""

_LONGEST_WORD_BYTES = 64
"""libFuzzer's Word::kMaxSize."""

_STARTED_AND_ENDED_WITHIN_S = 120
"""Beside the time asked for: imports are instrumented, and the corpus is read first."""


@dataclass(frozen=True)
class Run:
    """What came of one target."""

    target: str
    inputs: int
    found: bool
    log: Path

    def __str__(self) -> str:
        what = f"DEFECT, see {self.log}" if self.found else "nothing found"
        return f"{self.target:<16} {self.inputs:>11,} inputs: {what}"


def main() -> int:
    """Run targets one after the other; 1 if any was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--directory", type=Path, default=Path("out/fuzz"), help="for what is left")
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"TARGET = {', '.join(sorted(unknown))}: allowed are {', '.join(TARGETS)}")
    if find_spec("atheris") is None:
        parser.error("atheris is not installed: it has builds for Linux on x86-64 only")
    runs = []
    for target in arguments.targets or TARGETS:
        runs.append(run(target, arguments.seconds, arguments.directory))
        print(runs[-1], flush=True)  # noqa: T201 - a command's output
    return int(any(each.found for each in runs))


def run(target: str, seconds: int, directory: Path) -> Run:
    """Fuzz one target in a process of its own, which libFuzzer ends by itself."""
    corpus, found = directory / "corpus" / target, directory / "found"
    for made in (corpus, found):
        made.mkdir(parents=True, exist_ok=True)
    words = directory / "words"
    words.write_text("".join(f'"{escaped(word)}"\n' for word in WORDS if is_usable(word)))
    log = directory / f"{target}.log"
    command = [sys.executable, "-m", "tests.fuzz.libfuzzer", target]
    limits = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048"]
    limits += [f"-max_len={MAX_INPUT_BYTES}", f"-dict={words}"]
    output = [f"-artifact_prefix={found}/{target}-", "-print_final_stats=1"]
    with log.open("wb") as file:
        ended = subprocess.run(
            [*command, *limits, *output, corpus, SEEDS / target],
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=seconds + _STARTED_AND_ENDED_WITHIN_S,
            check=False,
        )
    said = log.read_text(errors="replace")
    executed = re.findall(r"stat::number_of_executed_units: +(\d+)", said)
    return Run(target, int(executed[-1]) if executed else 0, ended.returncode != 0, log)


def is_usable(word: bytes) -> bool:
    """Whether libFuzzer takes it into its dictionary."""
    return 0 < len(word) <= _LONGEST_WORD_BYTES


def escaped(word: bytes) -> str:
    """A word as libFuzzer's dictionary has it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
