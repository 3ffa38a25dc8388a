"""The load generator, a process of its own: ``python -m dial_lab.loadgen``.

Open loop: requests leave when the plan says, however many are in flight.  Latency is
counted from the *intended* moment, so that a generator or a balancer that falls behind
shows as latency instead of as less load (no coordinated omission).  How late requests
really left is recorded too; a run whose generator was late says so.

Results are columns in an ``.npz`` file (:class:`Results`).  Once a second a line of JSON on
standard output tells the live view how each backend does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dial_lab.arrivals import Arrivals, Swing, draw
from dial_lab.client import Done, Pool, header, precise_loop
from dial_lab.resources.base import Cost

SERVED_BY = "x-served-by"
"""Header in which the balancer names the backend."""

DRAIN_S = 15.0
"""How long answers are waited for after the last request left."""

UNANSWERED = -1
"""Status of a request whose answer did not come in that time."""


@dataclass(frozen=True, slots=True)
class Results:
    """What became of each request, in columns of equal length n, by intended moment.

    Attributes
    ----------
    intended_s
        float64[n], seconds from the block's start.
    late_ms
        float64[n], how much later the request really left.
    latency_ms
        float64[n], from the intended moment to the end of the answer.
    status
        int16[n], HTTP status, 0 when the connection broke, -1 when no answer came.
    backend
        int16[n], index into ``names``, -1 when no backend served it.
    names
        The backends.
    """

    intended_s: NDArray[np.float64]
    late_ms: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    status: NDArray[np.int16]
    backend: NDArray[np.int16]
    names: tuple[str, ...]

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which requests were answered with 200."""
        answered: NDArray[np.bool_] = self.status == 200
        return answered

    def shifted(self, by_s: float) -> Results:
        """The same with ``by_s`` added to every intended moment."""
        return replace(self, intended_s=self.intended_s + by_s)

    def save(self, path: Path) -> None:
        """Write to ``path``."""
        np.savez(
            path,
            intended_s=self.intended_s,
            late_ms=self.late_ms,
            latency_ms=self.latency_ms,
            status=self.status,
            backend=self.backend,
            names=np.array(self.names),
        )

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what :meth:`save` wrote."""
        # Opened here: numpy leaves a file open that it cannot read.
        with path.open("rb") as opened, np.load(opened) as file:
            return cls(
                file["intended_s"],
                file["late_ms"],
                file["latency_ms"],
                file["status"],
                file["backend"],
                tuple(str(name) for name in file["names"]),
            )


class Generator:
    """Sends the requests of one block and notes what becomes of them."""

    def __init__(self, arrivals: Arrivals, cost: Cost, pool: Pool, names: tuple[str, ...]) -> None:
        count = len(arrivals)
        self._arrivals = arrivals
        self._cost = cost
        self._pool = pool
        self._index = {name.encode(): i for i, name in enumerate(names)}
        self._left = 0
        self._answered = 0
        self._all_answered = asyncio.Event()
        self.results = Results(
            arrivals.at_s,
            np.full(count, np.nan),
            np.full(count, np.nan),
            np.full(count, UNANSWERED, dtype=np.int16),
            np.full(count, -1, dtype=np.int16),
            names,
        )
        self.ended: list[int] = []
        """Requests that ended since somebody last looked."""

    async def run(self, start: float) -> None:
        """Send everything; ``start`` is on the loop's clock."""
        loop = asyncio.get_running_loop()
        self._start = start
        loop.call_at(start + float(self._arrivals.at_s[0]), self._send_due)
        async with asyncio.timeout_at(start + float(self._arrivals.at_s[-1]) + DRAIN_S):
            await self._all_answered.wait()

    def _send_due(self) -> None:
        loop = asyncio.get_running_loop()
        at_s, amount = self._arrivals.at_s, self._arrivals.amount
        while self._left < len(at_s):
            i = self._left
            late_s = loop.time() - self._start - at_s[i]
            if late_s < 0:
                loop.call_at(self._start + float(at_s[i]), self._send_due)
                return
            self._left += 1
            self.results.late_ms[i] = 1e3 * late_s
            self._pool.get(self._cost.target(int(amount[i])), self._note(i))

    def _note(self, i: int) -> Done:
        def note(status: int, head: bytes) -> None:
            elapsed_s = asyncio.get_running_loop().time() - self._start
            self.results.latency_ms[i] = 1e3 * (elapsed_s - self._arrivals.at_s[i])
            self.results.status[i] = status
            by = header(head, SERVED_BY.encode())
            self.results.backend[i] = self._index.get(by, -1) if by is not None else -1
            self.ended.append(i)
            self._answered += 1
            if self._answered == len(self._arrivals):
                self._all_answered.set()

        return note


async def report(generator: Generator, percentile: float) -> None:
    """Print a line a second: rate and percentile of each backend, for the live view."""
    results = generator.results
    while True:
        await asyncio.sleep(1.0)
        ended = np.array(generator.ended, dtype=np.int64)
        generator.ended.clear()
        line = {}
        for index, name in enumerate(results.names):
            latency_ms = results.latency_ms[ended[results.backend[ended] == index]]
            t_x_ms = float(np.percentile(latency_ms, percentile)) if len(latency_ms) else None
            line[name] = {"rate_per_s": len(latency_ms), "t_x_ms": t_x_ms}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


async def generate(options: argparse.Namespace) -> None:
    """Run one block as the command line says."""
    cost = Cost(**json.loads(options.cost))
    arrivals = draw(
        options.seed,
        options.stream,
        options.rate,
        duration_s=options.duration,
        mean_cost=cost.mean,
        swings=[Swing(**swing) for swing in json.loads(options.swings)],
    )
    pool = Pool(options.host, options.port)
    generator = Generator(arrivals, cost, pool, tuple(options.backends.split(",")))
    reporting = asyncio.create_task(report(generator, options.percentile))
    try:
        # The loop's clock is the monotonic one, which all processes share.
        await generator.run(options.start)
    except TimeoutError:
        pass  # what is missing keeps its status UNANSWERED
    finally:
        reporting.cancel()
    generator.results.save(options.out)
    await pool.aclose()


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--backends", required=True, help="names, separated by commas")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--stream", type=int, default=0)
    parser.add_argument("--rate", type=float, required=True, help="requests per second")
    parser.add_argument("--duration", type=float, required=True, help="seconds")
    parser.add_argument("--cost", default="{}", help="what requests ask for, as JSON")
    parser.add_argument("--swings", default="[]", help="changes of the own load, as JSON")
    parser.add_argument("--percentile", type=float, default=90.0)
    parser.add_argument("--start", type=float, default=time.monotonic(), help="monotonic clock")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    gc.disable()  # a collection would be counted as somebody's latency
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(generate(options))


if __name__ == "__main__":
    main()
