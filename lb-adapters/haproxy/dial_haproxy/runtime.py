r"""HAProxy's runtime API: commands over a unix or TCP socket, and where an answer ends.

Framing is the hazard.  Outside the interactive mode HAProxy reads one line, which may hold
several commands separated by ``;``, answers them one after the other and closes.  Nothing
marks where one answer ends but an empty line, and a ``set weight`` that worked answers with
that empty line *alone*.  So the bytes ``"\nNo such server.\n\n"`` are two answers, and
splitting at ``"\n\n"``, the obvious way, makes one of them and attributes the failure to
the wrong server.  Here an answer is read as HAProxy writes it: lines up to and including
the first empty one.  The number of answers must then be the number of commands; where it
is not, nothing is guessed.

One line is also the unit of consistency: all its commands reach one process, even while a
reload replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dial.errors import BalancerRefused, BalancerUnreachable
from dial_haproxy.options import Address

MAX_LINE_BYTES = 8192
"""Commands per line are limited by HAProxy's buffer (tune.bufsize, 16384 by default)."""

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Beyond any real answer: ``show stat`` is about 500 bytes a server."""


class RuntimeClient:
    """Asks commands, a connection for each line of them.

    Parameters
    ----------
    address
        The runtime socket, ``unix`` or ``tcp``.
    timeout_s
        For one line of commands, connecting included.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s

    async def ask(self, commands: Sequence[str]) -> list[str]:
        """Answers in the order of the commands, each without its final line break.

        Commands that fit one line are sent in one.

        Raises
        ------
        BalancerUnreachable
            If nobody answers, or not in time; commands may have been carried out.
        BalancerRefused
            If the answers cannot be told apart.
        """
        answers: list[str] = []
        for line in _lines(commands):
            text = await self._exchange(";".join(line) + "\n")
            found = split_answers(text)
            if len(found) != len(line):
                raise BalancerRefused(
                    f"{self.address}: {len(found)} answers to {len(line)} commands, beginning "
                    f"{text[:80]!r}"
                )
            answers += found
        return answers

    async def _exchange(self, line: str) -> str:
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await self._connect()
                try:
                    writer.write(line.encode("ascii"))
                    await writer.drain()
                    answer = await _read_all(reader)
                finally:
                    writer.close()
        except TimeoutError:
            raise BalancerUnreachable(
                f"runtime socket {self.address}: no answer within {self._timeout_s:g} s"
            ) from None
        except PermissionError as error:
            raise BalancerUnreachable(
                f"runtime socket {self.address}: {error.strerror}; run as a member of the "
                "socket's group, or set 'user', 'group' and 'mode' on the stats socket line"
            ) from error
        except OSError as error:
            raise BalancerUnreachable(
                f"runtime socket {self.address}: {error.strerror or error}"
            ) from error
        if not answer:
            raise BalancerUnreachable(f"runtime socket {self.address}: closed without an answer")
        return answer.decode("utf-8", errors="replace")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.address.scheme == "unix":
            return await asyncio.open_unix_connection(self.address.path)
        return await asyncio.open_connection(self.address.host, self.address.port)


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """Read to the end, within bounds: another program may listen where HAProxy should."""
    chunks: list[bytes] = []
    total = 0
    while chunk := await reader.read(65_536):
        chunks.append(chunk)
        total += len(chunk)
        if total > MAX_ANSWER_BYTES:
            raise OSError(f"answer longer than {MAX_ANSWER_BYTES} bytes")
    return b"".join(chunks)


def split_answers(text: str) -> list[str]:
    r"""Take the answers to one line of commands apart.

    Examples
    --------
    >>> split_answers("\nNo such server.\n\n20 (initial 10)\n\n")
    ['', 'No such server.', '20 (initial 10)']
    """
    answers: list[str] = []
    lines: list[str] = []
    for line in text.split("\n")[:-1]:
        if line:
            lines.append(line)
        else:
            answers.append("\n".join(lines))
            lines = []
    if lines:
        # Some messages lack their own line break, so that the one that ends the answer ends
        # the message instead.  At the end of the stream it can still be told.
        answers.append("\n".join(lines))
    return answers


def _lines(commands: Sequence[str]) -> list[list[str]]:
    lines: list[list[str]] = [[]]
    size = 0
    for command in commands:
        size += len(command) + 1
        if size > MAX_LINE_BYTES and lines[-1]:
            lines.append([])
            size = len(command) + 1
        lines[-1].append(command)
    return lines
