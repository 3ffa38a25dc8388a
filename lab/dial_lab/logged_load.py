"""Requests to services of one VM, whose latency may be logged as a balancer would log it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from dial_lab.addresses import Address
from dial_lab.arrivals import Arrivals
from dial_lab.client import Pool
from dial_lab.loadgen import Generator
from dial_lab.resources.base import Cost

Requests = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Intended moment in s from the start, and latency in ms; infinite where there was no answer."""

_WRITE_LOG_S = 0.1


class Load:
    """The clients of all services, in one loop; what ends is logged at once, where there is a log.

    Parameters
    ----------
    addresses, arrivals
        By service.
    logs
        Of those whose latency is logged.
    """

    def __init__(
        self,
        addresses: Mapping[str, Address],
        arrivals: Mapping[str, Arrivals],
        logs: Mapping[str, Path],
    ) -> None:
        self._addresses = addresses
        self._arrivals = arrivals
        self._logs = logs
        self._generators: dict[str, Generator] = {}

    async def run(self, seconds: float, turns: Iterable[tuple[float, Callable[[], None]]]) -> float:
        """Send everything; each turn comes so many seconds after the start.

        Returns
        -------
        float
            The start, by the wall clock.
        """
        loop = asyncio.get_running_loop()
        pools = {name: Pool(*address) for name, address in self._addresses.items()}
        self._generators = {
            name: Generator(arrivals, Cost("cpu_us", 0.0), pools[name], (name,))
            for name, arrivals in self._arrivals.items()
        }
        start, begin_s = loop.time() + 0.5, time.time() + 0.5
        for at_s, turn in turns:
            loop.call_at(start + at_s, turn)
        with self._opened() as files:
            logging = asyncio.create_task(self._log(files))
            sending = [asyncio.create_task(g.run(start)) for g in self._generators.values()]
            # What is not answered in time keeps its status.
            await asyncio.gather(*sending, return_exceptions=True)
            await asyncio.sleep(max(0.0, start + seconds + 0.1 - loop.time()))
            logging.cancel()
        for pool in pools.values():
            await pool.aclose()
        return begin_s

    def results(self) -> dict[str, Requests]:
        """By service."""
        found = {}
        for name, generator in self._generators.items():
            latency_ms = np.where(generator.results.ok, generator.results.latency_ms, np.inf)
            found[name] = (generator.results.intended_s, latency_ms)
        return found

    @contextmanager
    def _opened(self) -> Iterator[dict[str, TextIO]]:
        files: dict[str, TextIO] = {
            name: log.open("a", encoding="ascii") for name, log in self._logs.items()
        }
        try:
            yield files
        finally:
            for file in files.values():
                file.close()

    async def _log(self, files: Mapping[str, TextIO]) -> None:
        while True:
            await asyncio.sleep(_WRITE_LOG_S)
            for name, file in files.items():
                generator = self._generators[name]
                ended = generator.ended[:]
                del generator.ended[: len(ended)]
                latency_ms = generator.results.latency_ms
                file.write("".join(f"{latency_ms[i]:.3f}\n" for i in ended))
                file.flush()
