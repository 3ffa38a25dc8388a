"""A neighbour that compiles: gcc over and over a generated C file, as a build does.

``timeout`` limits its time and hands a signal on to the whole group of processes, so that
stopping it stops gcc and the compiler proper (``cc1``) that gcc starts.  Killed, it takes the
loop with it, and the gcc of that moment ends by itself.
"""

from __future__ import annotations

from pathlib import Path

FUNCTIONS = 150
"""A compilation takes about a second of a core's time."""

_LOOP = 'while gcc -O2 -c "$1" -o "$2"; do :; done'

_FUNCTION = """
static unsigned step{n}(unsigned *a, unsigned n, unsigned k) {{
    unsigned sum = {n}u;
    for (unsigned i = 0; i < n; i++) {{
        switch ((a[i] ^ k) % {cases}u) {{
        case 0: sum += a[i] * {n}u; break;
        case 1: for (unsigned j = i; j < n; j += {stride}u) a[j] ^= sum >> (j & 7u); break;
        case 2: sum = sum << 3 | sum >> 29; break;
        default: a[i] = sum - k; sum ^= a[(i + {n}u) % n];
        }}
    }}
    return sum;
}}
"""


def source(functions: int = FUNCTIONS) -> str:
    """A C file of so many functions, no two of them alike, and one that calls them all."""
    steps = [
        _FUNCTION.format(n=number, cases=3 + number % 5, stride=1 + number % 7)
        for number in range(functions)
    ]
    calls = "".join(f"    k += step{number}(a, n, k);\n" for number in range(functions))
    head = "\nunsigned all(unsigned *a, unsigned n, unsigned k) {\n"
    return f"{''.join(steps)}{head}{calls}    return k;\n}}\n"


def argv(directory: Path, seconds: int) -> list[str]:
    """The command line; leaves the source in ``directory``."""
    file = directory / "neighbour.c"
    file.write_text(source(), encoding="ascii")
    return [
        *("timeout", "--kill-after=1", str(seconds)),
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("sh", "-c", _LOOP, "sh", str(file), str(file.with_suffix(".o"))),
    ]
