"""Clients that do not wait for one another: requests at a steady mean rate, Poisson arrivals.

``python client.py URL REQUESTS_PER_S``; prints the P90 of each ten seconds.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import suppress
from urllib.parse import urlsplit

REPORT_S = 10.0


async def ask(host: str, port: int, target: str, took_ms: list[float]) -> None:
    """Send one request, on a connection of its own."""
    began_s = time.monotonic()
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(host, port)
        with suppress(OSError):
            writer.write(f"GET {target} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            await reader.read()
            took_ms.append(1e3 * (time.monotonic() - began_s))
        writer.close()


async def main(url: str, rate_per_s: float) -> None:
    """Ask until told to stop."""
    where = urlsplit(url)
    host, port = where.hostname or "127.0.0.1", where.port or 80
    took_ms: list[float] = []
    reported_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        while True:
            tasks.create_task(ask(host, port, f"{where.path}?{where.query}", took_ms))
            await asyncio.sleep(random.expovariate(rate_per_s))
            if time.monotonic() - reported_s > REPORT_S and took_ms:
                p90_ms = sorted(took_ms)[int(0.9 * len(took_ms))]
                sys.stdout.write(f"{len(took_ms)} answers, P90 {p90_ms:.1f} ms\n")
                sys.stdout.flush()
                reported_s = time.monotonic()
                took_ms.clear()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
