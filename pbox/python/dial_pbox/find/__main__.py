"""``pbox-find``, or ``python -m dial_pbox.find``: the command, where libclang is installed."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command; 2 where what it parses with is not installed."""
    try:
        from dial_pbox.find.command import main as find  # noqa: PLC0415 - what may fail
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "clang":
            raise
        sys.stderr.write("pbox-find: libclang is not installed: pip install 'dial-pbox[find]'\n")
        return 2
    return find()


if __name__ == "__main__":
    sys.exit(main())
