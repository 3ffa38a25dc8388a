"""Many log lines at once: the fields of ordinary lines as columns, without a loop over lines.

An *ordinary* line is one in which every field has the form that it nearly always has.  All others
(aborted requests, redispatched ones, headers, names not seen before, garbage) are left to
:mod:`dial_haproxy.parser`, which reads one line at a time and has the last word on what a line
means.  So this module may refuse what it likes, and must never read a line that the other would
read differently.

How
    The buffer is searched for separators once.  A field is then a pair of positions; eight bytes
    from any position are one gather of 64-bit words, and up to eight digits in such a word become a
    number by three multiplications (Lemire, "Quickly parsing eight digits", 2018).  Names are
    compared with those known by their words, found in a hash table with linear probing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

LEAST_LINES = 48
"""Of a piece of log: with fewer, a line at a time is as fast."""

MAX_NAME_BYTES = 64
PADDING = 4 * MAX_NAME_BYTES + 256
"""Bytes behind the lines, so that they may be read beyond their end: more than any ordinary line of
format ``dial`` has, whose service, server and route have ``MAX_NAME_BYTES`` at most."""

MAX_NAMES = 65_536
"""Servers, or routes: who logs more of them is read a line at a time."""

_ZERO = np.uint8(ord("0"))
_ZEROS = np.uint64(0x3030303030303030)
_SIX = np.uint64(0x0606060606060606)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_SHIFT = np.array([0, *(8 * (8 - n) for n in range(1, 9))], np.uint64)
_FILL = np.array([0x3030303030303030 & ((1 << 8 * (8 - n)) - 1) for n in range(9)], np.uint64)
_MASK = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
_ZEROS_4, _SIX_4, _HIGH_4 = np.uint32(0x30303030), np.uint32(0x06060606), np.uint32(0xF0F0F0F0)
_PAIRS_4, _LAST_4 = np.uint32(0x00FF00FF), np.uint32(0xFFFF)
_TEN_4, _HUNDRED_4, _BYTE_4, _TWO_BYTES_4 = (np.uint32(n) for n in (10, 100, 8, 16))
_SHIFT_4 = np.array([0, 24, 16, 8, 0, 0, 0, 0, 0], np.uint32)
_FILL_4 = np.array([0x30303030, 0x303030, 0x3030, 0x30, 0, 0, 0, 0, 0], np.uint32)
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Columns:
    """The ordinary lines of a piece of log, m of them.

    Attributes
    ----------
    line
        int64[m], number of each among all lines, ascending.
    server, route
        int64[m], places in the tables of names; ``route`` is -1 where the format has none.
    end_s
        float64[m], when the answer began.
    first_byte_ms, total_ms, connect_ms
        float64[m], time to the first byte from when HAProxy held the request, to the last one from
        the request's own first byte, and to connect.
    received_ms
        float64[m], time that the client took to send the request.
    status
        int64[m].
    state
        uint8[m], first letter of the termination state.
    """

    line: Positions
    server: Positions
    route: Positions
    end_s: NDArray[np.float64]
    first_byte_ms: NDArray[np.float64]
    total_ms: NDArray[np.float64]
    connect_ms: NDArray[np.float64]
    received_ms: NDArray[np.float64]
    status: Positions
    state: Bytes


class Buffer:
    """Some whole lines, and what is read from any position of them.

    Parameters
    ----------
    data : whole lines, and at least ``PADDING`` bytes more.
    size : of the lines.
    """

    def __init__(self, data: bytes | memoryview, size: int) -> None:
        self.bytes: Bytes = np.frombuffer(data, np.uint8)
        self.size = size
        self._words = words_of(self.bytes)
        self._halves = np.lib.stride_tricks.as_strided(
            self.bytes[:4].view(np.uint32), (self.bytes.size - 3,), (1,), writeable=False
        )
        self.ends = self.find(b"\n")
        self.starts = np.concatenate([np.zeros(1, np.int64), self.ends[:-1] + 1])

    def find(self, character: bytes) -> Positions:
        """All positions of a character."""
        return np.flatnonzero(self.bytes[: self.size] == character[0])

    def has_control(self, line: Positions) -> Flags:
        """Whether a line has a control character in it, such as a tab, which ends a word too."""
        found = np.flatnonzero(self.bytes[: self.size] < ord(" "))
        lines = np.searchsorted(self.ends, found[self.bytes[found] != ord("\n")])
        return np.bincount(lines, minlength=self.ends.size)[line] > 0

    def digits(self, start: Positions, length: Positions) -> tuple[Positions, Flags]:
        """Numbers of 1 to 8 digits, and whether that is what is there."""
        longest = int(length.max(initial=1))
        if longest == 1:
            single = self.bytes[start] - _ZERO
            return single.astype(np.int64), (single < 10) & (length == 1)
        within = np.minimum(np.maximum(length, 1), 8)
        fits: Flags = within == length
        if longest <= 4:
            short = (self._halves[start] << _SHIFT_4[within]) | _FILL_4[within]
            short ^= _ZEROS_4
            fits &= ((short + _SIX_4) | short) & _HIGH_4 == 0
            short = (short * _TEN_4 + (short >> _BYTE_4)) & _PAIRS_4
            short = (short * _HUNDRED_4 + (short >> _TWO_BYTES_4)) & _LAST_4
            return short.astype(np.int64), fits
        word = (self._words[start] << _SHIFT[within]) | _FILL[within]
        number, good = _eight(word)
        return number, fits & good

    def microseconds(self, start: Positions, length: Positions) -> tuple[Positions, Flags]:
        """Numbers of 16 digits, of which the first eight are the same for minutes."""
        fits: Flags = length == 16
        first = self._words[start]
        if (first == first[0]).all():
            one, good = _eight(first[:1])
            fits &= good
            high = np.full(start.size, one[0])
        else:
            high, good = _eight(first)
            fits &= good
        low, good = _eight(self._words[start + 8])
        low += high * 100_000_000
        return low, fits & good

    def word(self, start: Positions, length: Positions) -> Words:
        """The first bytes of a text, 0 to 8 of them, as a number."""
        return self._words[start] & _MASK[np.minimum(np.maximum(length, 0), 8)]

    def is_text(self, start: Positions, length: Positions, text: bytes) -> Flags:
        """Whether a text is this one."""
        same: Flags = length == len(text)
        for at in range(0, len(text), 8):
            piece = text[at : at + 8]
            there = self._words[np.minimum(start + at, self.size)] & _MASK[len(piece)]
            same &= there == np.uint64(int.from_bytes(piece, "little"))
        return same


def words_of(text: Bytes) -> Words:
    """Of n bytes, the eight from each on as a number: n - 7 of them."""
    return np.lib.stride_tricks.as_strided(
        text[:8].view(np.uint64), (text.size - 7,), (1,), writeable=False
    )


def _eight(word: Words) -> tuple[Positions, Flags]:
    """The number that eight digits in a word are, and whether they are digits."""
    word = word ^ _ZEROS
    fits = ((word + _SIX) | word) & _HIGH == 0
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    word = (word * np.uint64(10_000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return word.view(np.int64), fits


class Names:
    """Names that have been seen, and their places in the order they came.

    Attributes
    ----------
    names
        All of them.
    """

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._known: dict[bytes, int] = {}
        self._words = np.zeros((16, MAX_NAME_BYTES // 8), np.uint64)
        self._lengths = np.zeros(16, np.int64)
        self._longest = 1
        self._table = np.full(64, -1, np.int64)

    @property
    def arrays(self) -> tuple[Words, Positions, Positions]:
        """Words and length of each, and the hash table of their places, -1 where it is free."""
        return self._words, self._lengths, self._table

    def place(self, name: bytes) -> int | None:
        """Where a name is; it is added if there is room, and ``None`` if there is not."""
        place = self._known.get(name)
        if place is not None or len(self.names) >= MAX_NAMES or len(name) > MAX_NAME_BYTES:
            return place
        place = self._known[name] = len(self.names)
        self.names.append(name)
        if place >= self._lengths.size:
            self._words = np.concatenate([self._words, np.zeros_like(self._words)])
            self._lengths = np.concatenate([self._lengths, np.zeros_like(self._lengths)])
        self._words[place] = np.frombuffer(name.ljust(MAX_NAME_BYTES, b"\0"), np.uint64)
        self._lengths[place] = len(name)
        self._longest = max(self._longest, len(name))
        if 4 * len(self.names) > self._table.size:
            self._table = np.full(4 * self._table.size, -1, np.int64)
            for number in range(len(self.names)):
                self._put(number)
        else:
            self._put(place)
        return place

    def _put(self, number: int) -> None:
        mask = self._table.size - 1
        at = int(_hash(self._words[number : number + 1].T)[0]) & mask
        while self._table[at] >= 0:
            at = (at + 1) & mask
        self._table[at] = number

    def find(self, buffer: Buffer, start: Positions, length: Positions) -> Positions:
        """Place of each text; -1 where it is not known."""
        if not self.names or not start.size:
            return np.full(start.size, -1, np.int64)
        if len(self.names) == 1:
            return np.where(buffer.is_text(start, length, self.names[0]), 0, -1)
        # An embedded zero byte would look like the end of a shorter name, so lengths count too.
        words = [
            buffer.word(np.minimum(start + at, buffer.size), length - at)
            for at in range(0, self._longest, 8)
        ]
        mask = self._table.size - 1
        at = (_hash(words) & np.uint64(mask)).astype(np.int64)
        number = self._table[at]
        same = self._are(number, length, words)
        found = np.where(same, number, -1)
        open_rows = np.flatnonzero(~same & (number >= 0))
        while open_rows.size:
            at[open_rows] = (at[open_rows] + 1) & mask
            number = self._table[at[open_rows]]
            same = self._are(number, length[open_rows], [word[open_rows] for word in words])
            found[open_rows[same]] = number[same]
            open_rows = open_rows[~same & (number >= 0)]
        return found

    def _are(self, number: Positions, length: Positions, words: list[Words]) -> Flags:
        """Whether each text is the name of that number; -1 is no name's."""
        same: Flags = (self._lengths[number] == length) & (number >= 0)
        for column, word in enumerate(words):
            same &= self._words[number, column] == word
        return same


def _hash(words: list[Words] | Words) -> Words:
    """Of names of equal numbers of words; trailing zeros change nothing."""
    mixed = np.zeros(len(words[0]), np.uint64)
    factor = 1
    for word in words:
        factor = factor * int(_ODD) % 2**64
        mixed ^= word * np.uint64(factor)
    return mixed >> np.uint64(32)


def compact(buffer: Buffer, pool: bytes, servers: Names, routes: Names) -> Columns:
    """Ordinary lines of format ``dial``."""
    commas = buffer.find(b",")
    first = np.searchsorted(commas, buffer.starts)
    counts = np.diff(np.append(first, commas.size))
    line = np.flatnonzero(counts == 12)
    if not line.size:
        return _nothing()
    start, end = buffer.starts[line], buffer.ends[line]
    end = end - (buffer.bytes[end - 1] == ord("\r"))
    comma = commas[first[line] + np.arange(12)[:, None]]
    field = [start, *(c + 1 for c in comma)]
    length = [b - a for a, b in zip(field, [*comma, end], strict=True)]
    server = servers.find(buffer, field[1], length[1])
    route = routes.find(buffer, field[12], length[12])
    fits = (server >= 0) & (route >= 0) & buffer.is_text(field[0], length[0], pool)
    begin_us, good = buffer.microseconds(field[2], length[2])
    fits &= good
    answered_us, good = buffer.microseconds(field[3], length[3])
    fits &= good & (answered_us >= begin_us) & (length[9] == 4)
    numbers = {}
    for number in (4, 5, 6, 7, 8, 10, 11):
        numbers[number], good = buffer.digits(field[number], length[number])
        fits &= good
    fits &= length[8] <= 3
    return _kept(
        Columns(
            line,
            server,
            route,
            end_s=answered_us / 1e6,
            first_byte_ms=(answered_us - begin_us) / 1e3,
            total_ms=numbers[7].astype(np.float64),
            connect_ms=numbers[5].astype(np.float64),
            received_ms=numbers[4].astype(np.float64),
            status=numbers[8],
            state=buffer.bytes[field[9]],
        ),
        fits,
    )


class Seconds:
    """Dates of an httplog, such as ``20/Nov/2026:22:14:15``, as seconds since the epoch.

    Parameters
    ----------
    read : reads one; ``None`` where it is no date.
    """

    def __init__(self, read: Callable[[bytes], float | None]) -> None:
        self.read = read

    def find(self, buffer: Buffer, start: Positions) -> NDArray[np.float64]:
        """Of each line; NaN where it is no date.  Lines of one second nearly always follow."""
        words = [buffer.word(start + at, np.full(start.size, n)) for at, n in _DATE_WORDS]
        changes = np.ones(start.size, np.bool_)
        changes[1:] = np.any([word[1:] != word[:-1] for word in words], axis=0)
        places = np.flatnonzero(changes)
        read = [self.read(bytes(buffer.bytes[at : at + DATE])) for at in start[places].tolist()]
        values = np.array([np.nan if one is None else one for one in read])
        of_each: NDArray[np.float64] = values[np.cumsum(changes) - 1]
        return of_each


DATE = len(b"20/Nov/2026:22:14:15")
_DATE_WORDS = ((0, 8), (8, 8), (16, 4))
STAMP = len(b"[20/Nov/2026:22:14:15.978] ")
_STAMP_FORM = ((3, b"/"), (7, b"/"), (12, b":"), (21, b"."), (25, b"]"), (26, b" "))
_TOKENS = 9
"""After the date: frontend, pool/server, timers, status, bytes, 2 cookies, state, connections."""


def httplog(buffer: Buffer, pool: bytes, servers: Names, seconds: Seconds) -> Columns:
    """Ordinary lines of format ``httplog``; what stands before the date is not looked at."""
    line, stamp = _stamps(buffer)
    spaces = buffer.find(b" ")
    first = np.searchsorted(spaces, stamp + STAMP - 1)
    enough = first + _TOKENS < spaces.size
    line, stamp, first = line[enough], stamp[enough], first[enough]
    if not line.size:
        return _nothing()
    space = spaces[first + np.arange(_TOKENS + 1)[:, None]]
    whole = space[_TOKENS] < buffer.ends[line]
    line, stamp, space = line[whole], stamp[whole], space[:, whole]
    if not line.size:
        return _nothing()
    field = space[:-1] + 1
    length = space[1:] - field
    fits = np.all(length > 0, axis=0) & (length[7] == 4)
    # Of "app/s1" the first part is the pool, up to the first slash.
    named = len(pool) + 1
    fits &= buffer.is_text(field[1], np.minimum(length[1], named), pool + b"/")
    server = servers.find(buffer, field[1] + named, length[1] - named)
    fits &= server >= 0
    slashes = buffer.find(b"/")
    timers, good = _between(buffer, slashes, field[2], space[3])
    fits &= good
    _, good = _between(buffer, slashes, field[8], space[9])
    fits &= good
    status, good = buffer.digits(field[3], length[3])
    fits &= good & (length[3] <= 3)
    _, good = buffer.digits(field[4], length[4])
    fits &= good
    begin_ms, good = buffer.digits(stamp + 1 + DATE + 1, np.full(line.size, 3))
    fits &= good
    second_s = seconds.find(buffer, stamp + 1)
    fits &= np.isfinite(second_s) & ~buffer.has_control(line)
    received_ms, waited_ms, connected_ms, answered_ms, total_ms = timers
    first_byte_ms = waited_ms + connected_ms + answered_ms
    begin_s = second_s + begin_ms / 1e3
    return _kept(
        Columns(
            line,
            server,
            np.full(line.size, -1),
            end_s=begin_s + (received_ms + first_byte_ms) / 1e3,
            first_byte_ms=first_byte_ms.astype(np.float64),
            total_ms=total_ms.astype(np.float64),
            connect_ms=connected_ms.astype(np.float64),
            received_ms=received_ms.astype(np.float64),
            status=status,
            state=buffer.bytes[field[7]],
        ),
        fits,
    )


def _stamps(buffer: Buffer) -> tuple[Positions, Positions]:
    """Lines with exactly one thing that may be a date in brackets, and where it begins."""
    brackets = buffer.find(b"[")
    brackets = brackets[brackets + STAMP <= buffer.size]
    for at, character in _STAMP_FORM:
        brackets = brackets[buffer.bytes[brackets + at] == character[0]]
    line = np.searchsorted(buffer.ends, brackets)
    single = np.bincount(line, minlength=buffer.ends.size)[line] == 1
    return line[single], brackets[single]


def _between(
    buffer: Buffer, slashes: Positions, start: Positions, end: Positions
) -> tuple[list[Positions], Flags]:
    """The five numbers of ``0/0/0/5/6``, and whether that is what is there."""
    first = np.searchsorted(slashes, start)
    counts = np.searchsorted(slashes, end) - first
    fits: Flags = counts == 4
    places = np.minimum(first + np.arange(4)[:, None], slashes.size - 1)
    inner = np.where(fits, slashes[places], start)
    numbers = []
    for a, b in zip([start, *(inner + 1)], [*inner, end], strict=True):
        number, good = buffer.digits(a, b - a)
        fits = fits & good
        numbers.append(number)
    return numbers, fits


def _nothing() -> Columns:
    none, number = np.empty(0), np.empty(0, np.int64)
    return Columns(
        number, number, number, none, none, none, none, none, number, np.empty(0, np.uint8)
    )


def _kept(columns: Columns, fits: Flags) -> Columns:
    if fits.all():
        return columns
    return Columns(*(getattr(columns, name)[fits] for name in Columns.__slots__))
