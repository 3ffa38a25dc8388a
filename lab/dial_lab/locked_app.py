"""The tenant's application with a lock in it: what one activity holds, all others wait for.

``GET /work?cpu_us=2000`` does its work while it holds the application's one table lock.
``GET /report?hold_ms=100`` gets the same lock and then waits for something outside for so long:
a report that reads a table, a backup, a SELECT FOR UPDATE of a client that went for a coffee.
Meanwhile the hardware is idle and every request waits.

Both are activities of a pBox each (:mod:`dial_pbox`), so the application's statistics page tells
who waited for what.  One thread, as in :mod:`dial_lab.app`, whose work it does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from pathlib import Path
from urllib.parse import parse_qs

import dial_pbox
from dial_lab.app import BadRequest, answer, response, worker

MOST_HOLD_MS = 10_000


def hold_s(query: str) -> float:
    """How long a report holds the lock.

    Raises
    ------
    BadRequest
        If it is not told, or not one number from 1 to :data:`MOST_HOLD_MS`.
    """
    given = parse_qs(query).get("hold_ms", [])
    text = given[0] if len(given) == 1 else ""
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST_HOLD_MS):
        raise BadRequest(f"hold_ms: allowed is one number from 1 to {MOST_HOLD_MS}")
    return int(text) / 1000.0


class Application:
    """Serves both kinds of request."""

    def __init__(self) -> None:
        self._table = dial_pbox.aio.Lock("table orders")
        self._do = worker(None, None)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the client closes it."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                if len(words) != 3 or words[0] != "GET":
                    writer.write(response("400 Bad Request", b"only GET is served\n"))
                    break
                writer.write(await self._answer(words[1]))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client has gone, or sent no request
        finally:
            writer.close()

    async def _answer(self, target: str) -> bytes:
        path, _, query = target.partition("?")
        if path != "/report":
            async with dial_pbox.aio.activity("request"), self._table:
                return answer(target, self._do)
        try:
            seconds = hold_s(query)
        except BadRequest as error:
            return response("400 Bad Request", f"{error}\n".encode())
        async with dial_pbox.aio.activity("report"), self._table:
            await asyncio.sleep(seconds)
        return response("200 OK", b"")


async def run(host: str, port: int) -> None:
    """Serve until TERM or INT."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    server = await asyncio.start_server(Application().serve, host, port, backlog=4096)
    async with server:
        await stopped.wait()


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser(description="GET /work?cpu_us=N, GET /report?hold_ms=N")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    # Measuring only: what the balancer makes of the signal is the subject here.
    dial_pbox.open_domain(mode=dial_pbox.Mode.MEASURE, page=options.page)
    gc.disable()  # as in dial_lab.app
    try:
        asyncio.run(run(options.host, options.port))
    finally:
        dial_pbox.close_domain()


if __name__ == "__main__":
    main()
