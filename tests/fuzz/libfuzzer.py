"""One target under libFuzzer: ``python -m tests.fuzz.libfuzzer TARGET [libFuzzer's arguments]``.

The parsers are instrumented as they are imported, so that libFuzzer sees which of their
branches an input takes.  What is written in C or Rust (json, csv, pydantic) it does not see.
"""

from __future__ import annotations

import sys

import atheris


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    with atheris.instrument_imports(include=["dial", "dial_haproxy", "tomllib"]):
        from .targets import TARGETS  # noqa: PLC0415 - instrumented, so imported here
    program, target, *arguments = sys.argv

    def one_input(data: bytes) -> None:
        TARGETS[target](data)

    atheris.Setup([program, *arguments], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
