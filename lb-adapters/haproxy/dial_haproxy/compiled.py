"""Ordinary lines as :mod:`dial_haproxy.columns` has them, read once by compiled code.

Arrays go over a line some two hundred times; this goes over it once, eight bytes together where it
can, and takes a quarter of the time.  What is made of an ordinary line is the same to the last bit,
and all else is left to :mod:`dial_haproxy.parser` here too.

It needs numba (the extra ``fast``), which compiles when this is first imported, for some seconds,
and keeps the result on disk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dial_haproxy.columns import (
    DATE,
    MAX_NAME_BYTES,
    STAMP,
    Columns,
    Names,
    Positions,
    Seconds,
    Words,
    words_of,
)

_COMMA, _NEWLINE, _RETURN, _SPACE, _SLASH, _BRACKET = b",\n\r /["
_COLON, _POINT, _CLOSING = b":.]"
_ZEROS = np.uint64(0x3030303030303030)
_TOP_ABOVE_NINE = np.uint64(0x7676767676767676)
"""Added to a byte it sets the top bit, but of those up to nine."""

_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_FOURS = np.uint64(0x0000FFFF0000FFFF)
_LAST = np.uint64(0xFFFFFFFF)
_TEN, _HUNDRED, _TEN_THOUSAND = np.uint64(10), np.uint64(100), np.uint64(10_000)
_SEVEN, _BYTE, _TWO_BYTES, _FOUR_BYTES, _SEVEN_BYTES = (np.uint64(n) for n in (7, 8, 16, 32, 56))
_ONE, _ONES, _TOPS = (np.uint64(n) for n in (1, 0x0101010101010101, 0x8080808080808080))
_PRINTED = np.uint64(0x2020202020202020)
_IN_A_NAME = np.uint64(0x2D2D2D2D2D2D2D2D)
"""The least byte of a route, and of a server's name, eight times: commas and blanks are below."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_NONE = -1

_LEAST_BYTES = len(",,1795211945545012,1795211945546393,0,0,0,0,0,----,0,0,\n")
"""Of an ordinary line: there are no more of them than this goes into a piece of log."""

_FEW = 64
"""Other lines that there is room for, before there has to be more."""

_LINE, _SERVER, _ROUTE, _STATUS = range(4)
_RECEIVED, _CONNECT, _ANSWERED, _TOTAL, _WAITED, _FIRST_BYTE, _AT, _REST = range(8)
"""Rows of what is found: whole numbers, and times, the first four in the order of format ``dial``;
nobody asks for ``_REST``."""

_TIMERS, _CONNECTIONS = (_RECEIVED, _WAITED, _CONNECT, _ANSWERED, _TOTAL), (_REST,) * 5
"""Of an httplog."""


class _Known(NamedTuple):
    """What is known before a line is read; names as :attr:`Names.arrays` has them."""

    pool: NDArray[np.uint8]
    servers: tuple[Words, Positions, Positions]
    routes: tuple[Words, Positions, Positions]
    name: Words
    """uint64[8]: room for the words of one."""


class _Found(NamedTuple):
    """What is read of m ordinary lines."""

    numbers: Positions
    """int64[4, m]."""
    times: NDArray[np.float64]
    """float64[8, m]: in ms; ``_AT`` in the unit of the format."""
    state: NDArray[np.uint8]
    """uint8[m]."""
    dates: Positions
    """int64[m + 1]: where the dates begin that differ from the one before; last, how many."""


def compact(
    data: memoryview, size: int, pool: bytes, servers: Names, routes: Names
) -> tuple[Columns, Positions]:
    """Ordinary lines of format ``dial``, and the others.

    Parameters
    ----------
    data : whole lines, and at least ``PADDING`` bytes more.
    size : of the lines.
    pool : the service.
    servers, routes : names that have been seen.

    Returns
    -------
    Columns
        Of the ordinary lines.
    (3, k)
        Number, start and end of each of the others.
    """
    found, others = _read_all(data, size, pool, servers, routes, is_compact=True)
    return _columns(found, found.times[_AT] / 1e6), others


def httplog(
    data: memoryview, size: int, pool: bytes, servers: Names, seconds: Seconds
) -> tuple[Columns, Positions] | None:
    """The same of format ``httplog``; ``None`` where something that looks like a date is none."""
    found, others = _read_all(data, size, pool, servers, Names(), is_compact=False)
    dates = found.dates[: found.dates[-1]].tolist()
    read = [seconds.read(bytes(data[at : at + DATE])) for at in dates]
    if None in read:
        return None
    begin_s = np.array(read, float)[found.numbers[_ROUTE]] + found.times[_AT] / 1e3
    found.numbers[_ROUTE] = -1
    to_first_byte_ms = found.times[_RECEIVED] + found.times[_FIRST_BYTE]
    return _columns(found, begin_s + to_first_byte_ms / 1e3), others


def _columns(found: _Found, end_s: NDArray[np.float64]) -> Columns:
    line, server, route, status = found.numbers
    received_ms, connect_ms, _, total_ms, _, first_byte_ms, *_ = found.times
    return Columns(
        line,
        server,
        route,
        end_s,
        first_byte_ms,
        total_ms,
        connect_ms,
        received_ms,
        status,
        found.state,
    )


def _read_all(
    data: memoryview, size: int, pool: bytes, servers: Names, routes: Names, *, is_compact: bool
) -> tuple[_Found, Positions]:
    text = np.frombuffer(data, np.uint8)
    known = _Known(
        np.frombuffer(pool, np.uint8),
        servers.arrays,
        routes.arrays,
        np.empty(MAX_NAME_BYTES // 8, np.uint64),
    )
    lines = size // _LEAST_BYTES + 1
    found = _Found(
        np.empty((4, lines), np.int64),
        np.empty((8, lines)),
        np.empty(lines, np.uint8),
        np.zeros(lines + 1, np.int64),
    )
    ordinary, others = _read(
        text, words_of(text), size, known, found, np.empty((3, _FEW), np.int64), is_compact
    )
    return _Found(
        found.numbers[:, :ordinary], found.times[:, :ordinary], found.state[:ordinary], found.dates
    ), others


@njit(inline="always")
def _get(array, at):
    """What is there; of a signed place numba would ask each time whether it is negative."""
    return array[np.uint64(at)]


@njit(inline="always")
def _before(tops):
    """Of eight bytes: all bits of those before the first that has its top bit, and their number."""
    bits = ((tops & (~tops + _ONE)) >> _SEVEN) - _ONE
    return bits, np.int64(((bits & _ONES) * _ONES) >> _SEVEN_BYTES)


@njit(inline="always")
def _number(word):
    """The number of up to 8 digits with which a word begins, and how many they are."""
    word ^= _ZEROS
    # What is carried from a byte that is no digit changes only those behind it.
    _, digits = _before(((word + _TOP_ABOVE_NINE) | word) & _TOPS)
    word <<= np.uint64((64 - 8 * digits) & 63)
    word = (word * _TEN + (word >> _BYTE)) & _PAIRS
    word = (word * _HUNDRED + (word >> _TWO_BYTES)) & _FOURS
    return np.int64((word * _TEN_THOUSAND + (word >> _FOUR_BYTES)) & _LAST), digits


@njit(inline="always")
def _microseconds(first, second):
    """The number of 16 digits that two words are, and whether they are digits."""
    high, high_digits = _number(first)
    low, low_digits = _number(second)
    return high * 100_000_000 + low, (high_digits == 8) & (low_digits == 8)


@njit(forceinline=True)
def _place(words, at, least, names, name):
    """Place of the name that ends before a byte below ``least``, -1 if unknown, and where it ends.

    ``name`` is room for its words; they are hashed as :class:`dial_haproxy.columns.Names` does.
    """
    known, lengths, table = names
    factor, mixed, length, count, is_whole = _ODD, np.uint64(0), 0, 0, False
    while not is_whole and count < name.size:
        word = _get(words, at + length)
        bits, size = _before((word - least) & ~word & _TOPS)
        word &= bits
        name[count] = word
        mixed ^= word * factor
        factor *= _ODD
        length += size
        count += 1
        is_whole = size < 8
    if not is_whole:
        # As long as a name may be: it is whole if it ends here.
        word = _get(words, at + length)
        is_whole = _before((word - least) & ~word & _TOPS)[1] == 0
    slot = np.int64(mixed >> _FOUR_BYTES) & (table.size - 1)
    number, same = table[slot], False
    while number >= 0 and not same:
        same = is_whole and lengths[number] == length
        for each in range(count):
            same = same and known[number, each] == name[each]
        if not same:
            slot = (slot + 1) & (table.size - 1)
            number = table[slot]
    return number, at + length


@njit(forceinline=True)
def _compact(text, words, at, known, found, row):  # noqa: PLR0917 - arrays, and where
    """Read a line of format ``dial`` into a row; where it ends, or -1 where it is not ordinary.

    It is read to its end in any case, without a branch for each field: that takes half the time.
    In another line the places mean nothing, and stay within ``PADDING`` bytes of its start.
    """
    fits = True
    for place in range(known.pool.size):
        fits &= _get(text, at + place) == known.pool[place]
    at += known.pool.size
    fits &= _get(text, at) == _COMMA
    server, at = _place(words, at + 1, _IN_A_NAME, known.servers, known.name)
    fits &= (server >= 0) & (_get(text, at) == _COMMA)
    begin_us, good = _microseconds(_get(words, at + 1), _get(words, at + 9))
    fits &= good & (_get(text, at + 17) == _COMMA)
    answered_us, good = _microseconds(_get(words, at + 18), _get(words, at + 26))
    fits &= good & (_get(text, at + 34) == _COMMA) & (answered_us >= begin_us)
    at += 35
    for place in range(4):
        value, digits = _number(_get(words, at))
        at += digits + 1
        fits &= (digits > 0) & (_get(text, at - 1) == _COMMA)
        found.times[place, row] = value
    status, digits = _number(_get(words, at))
    at += digits
    fits &= (digits > 0) & (digits <= 3) & (_get(text, at) == _COMMA)
    found.state[row] = _get(text, at + 1)
    for place in range(1, 5):
        fits &= (_get(text, at + place) != _COMMA) & (_get(text, at + place) != _NEWLINE)
    fits &= _get(text, at + 5) == _COMMA
    at += 6
    for _ in range(2):  # connections and retries
        _, digits = _number(_get(words, at))
        at += digits + 1
        fits &= (digits > 0) & (_get(text, at - 1) == _COMMA)
    route, at = _place(words, at, _PRINTED, known.routes, known.name)
    at += _get(text, at) == _RETURN
    fits &= (route >= 0) & (_get(text, at) == _NEWLINE)
    found.numbers[_SERVER, row], found.numbers[_ROUTE, row] = server, route
    found.numbers[_STATUS, row] = status
    found.times[_AT, row] = answered_us
    found.times[_FIRST_BYTE, row] = (answered_us - begin_us) / 1e3
    return at if fits else _NONE


@njit(inline="always")
def _is(text, at, what):
    """Whether a text of one line stands there."""
    for place in range(what.size):  # noqa: SIM110 - numba compiles no generator
        if _get(text, at + place) != what[place]:
            return False
    return True


@njit(inline="always")
def _is_stamp(text, at):
    """Whether this bracket may begin a date, by its form."""
    return (
        _get(text, at + 3) == _SLASH
        and _get(text, at + 7) == _SLASH
        and _get(text, at + 12) == _COLON
        and _get(text, at + 21) == _POINT
        and _get(text, at + 25) == _CLOSING
        and _get(text, at + 26) == _SPACE
    )


@njit(inline="always")
def _word(text, at):
    """Where the word after this space ends; -1 where there is none, or it ends the line."""
    at += 1
    begin = at
    while _get(text, at) != _SPACE and _get(text, at) != _NEWLINE:
        at += 1
    return at if at > begin and _get(text, at) == _SPACE else _NONE


@njit(inline="always")
def _five(text, words, at, places, found, row):  # noqa: PLR0917 - see above
    """Read five numbers such as ``0/0/0/5/6``; where they end, or -1 where there are none."""
    for number in range(5):
        value, digits = _number(_get(words, at + 1))
        at += 1 + digits
        if digits == 0 or _get(text, at) != (_SPACE if number == 4 else _SLASH):
            return _NONE
        found.times[places[number], row] = value
    return at


@njit(inline="always")
def _httplog(text, words, at, known, found, row):  # noqa: PLR0911, PLR0912, PLR0917 - out at the first odd byte
    """Read a line of format ``httplog`` as :func:`_compact` does."""
    stamp, stamps = at, 0
    while _get(text, at) != _NEWLINE:
        if _get(text, at) < _SPACE:
            return _NONE
        if _get(text, at) == _BRACKET and _is_stamp(text, at):
            stamp, stamps = at, stamps + 1
        at += 1
    end = at
    if stamps != 1 or stamp + STAMP > end:
        return _NONE
    begin_ms, digits = _number(_get(words, stamp + 1 + DATE + 1))
    if digits != 3:
        return _NONE
    at = _word(text, stamp + STAMP - 1)  # the frontend
    if (
        at < 0
        or not _is(text, at + 1, known.pool)
        or _get(text, at + 1 + known.pool.size) != _SLASH
    ):
        return _NONE
    server, at = _place(words, at + 2 + known.pool.size, _IN_A_NAME, known.servers, known.name)
    if server < 0 or _get(text, at) != _SPACE:
        return _NONE
    at = _five(text, words, at, _TIMERS, found, row)
    if at < 0:
        return _NONE
    found.times[_FIRST_BYTE, row] = (
        found.times[_WAITED, row] + found.times[_CONNECT, row] + found.times[_ANSWERED, row]
    )
    status, digits = _number(_get(words, at + 1))
    at += 1 + digits
    if digits == 0 or digits > 3 or _get(text, at) != _SPACE:
        return _NONE
    _, digits = _number(_get(words, at + 1))  # bytes
    at += 1 + digits
    if digits == 0 or _get(text, at) != _SPACE:
        return _NONE
    for _ in range(2):  # cookies
        at = _word(text, at)
        if at < 0:
            return _NONE
    found.state[row] = _get(text, at + 1)
    before, at = at, _word(text, at)
    if at != before + 5 or _five(text, words, at, _CONNECTIONS, found, row) < 0:
        return _NONE
    days = found.dates[-1]
    for place in range(stamp + 1, stamp + 1 + DATE):
        if days == 0 or _get(text, place) != _get(text, found.dates[days - 1] + place - stamp - 1):
            found.dates[days] = stamp + 1
            days += 1
            break
    found.dates[-1] = days
    found.numbers[_SERVER, row], found.numbers[_ROUTE, row] = server, days - 1
    found.numbers[_STATUS, row], found.times[_AT, row] = status, begin_ms
    return end


@njit(cache=True, nogil=True)
def _read(text, words, size, known, found, others, is_compact):  # noqa: PLR0917 - arrays, and what they are
    """Read all lines; how many are ordinary, and the others."""
    row = strange = number = start = 0
    while start < size:
        if is_compact:
            end = _compact(text, words, start, known, found, row)
        else:
            end = _httplog(text, words, start, known, found, row)
        if end >= 0:
            found.numbers[_LINE, row] = number
            row += 1
        else:
            end = start
            while _get(text, end) != _NEWLINE:
                end += 1
            if strange == others.shape[1]:
                others = np.concatenate((others, np.empty_like(others)), axis=1)
            others[0, strange], others[1, strange], others[2, strange] = number, start, end
            strange += 1
        start, number = end + 1, number + 1
    return row, others[:, :strange]
