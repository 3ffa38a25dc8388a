"""Whether DIAL's parser reads a ``log-format``: by letting it read a line.

Comparing texts would refuse a harmless field at the end and pass a swapped one in the
middle.  So each field is given a value of its own, the line is written as HAProxy would,
and :class:`~dial_haproxy.parser.LogParser` must find the values where they belong.
"""

from __future__ import annotations

import re

from dial_haproxy.options import LogFormat
from dial_haproxy.parser import LogParser

_FIELD = re.compile(
    r"%(?:\{[^}]*\})?(?:\[(?P<sample>[^\]]*)\]|(?P<alias>[A-Za-z]+)|(?P<percent>%))"
)

_VALUES = {
    # A request of a server that answered 500: its first byte after 2 + 3 + 4 ms, its last after 14.
    "b": "app", "s": "s1", "ST": "500", "ts": "--", "tsc": "----",
    "TR": "1", "Tw": "2", "Tc": "3", "Tr": "4", "Ta": "15", "Tt": "16", "Tq": "17", "Td": "18",
    "Th": "19", "Ti": "20",
    "var(txn.dial_t0)": "1795211945000000", "var(txn.dial_t1)": "1795211945009000",
    "var(txn.dial_route)": "-",
    # The rest as 8.2.6 of the configuration manual shows it.
    "t": "20/Nov/2026:22:14:15.978", "tr": "20/Nov/2026:22:14:15.978",
    "ci": "10.0.0.9", "cp": "4711", "f": "fe", "ft": "fe", "B": "999", "U": "98",
    "ac": "1", "fc": "1", "bc": "1", "sc": "1", "rc": "0", "sq": "0", "bq": "0",
    "CC": "-", "CS": "-", "hr": "", "hs": "", "r": "GET / HTTP/1.1",
}  # fmt: skip
_EXPECTED = ("s1", 14.0, 3.0, True)


def reading(log_format: str) -> LogFormat | None:
    """Which of DIAL's formats a ``log-format`` is, read with the right meaning; else ``None``.

    Examples
    --------
    >>> reading("%ci [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B - - %tsc %ac/%fc/%bc/%sc/%rc x ")
    'httplog'
    >>> reading("%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq") is None
    True
    """
    line = _FIELD.sub(_value, log_format).encode("utf-8", errors="replace")
    formats: tuple[LogFormat, ...] = ("dial", "httplog")
    return next((name for name in formats if _reads(name, line)), None)


def _value(field: re.Match[str]) -> str:
    if field["percent"]:
        return "%"
    return _VALUES.get(field["sample"] or field["alias"] or "", "-")


def _reads(name: LogFormat, line: bytes) -> bool:
    # A facility and a date come first where the log target adds a header.
    batch = LogParser("app", name).feed(b"<134>Nov 20 22:14:15 haproxy[7]: " + line + b"\n")
    if len(batch) != 1 or batch.malformed:
        return False
    found = (
        batch.names[0],
        float(batch.latency_ms[0]),
        float(batch.connect_ms[0]),
        bool(batch.failed[0]),
    )
    return found == _EXPECTED
