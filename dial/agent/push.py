"""Delivering samples without ever delaying the taking of them.

A push can hang for as long as its timeout, five intervals at 1 Hz, so it has a thread of
its own; the two threads share nothing but the outbox.  What follows an answer:

============  ==================  ===========================================
answer        these samples       next attempt
============  ==================  ===========================================
2xx           delivered           as soon as there is a sample
other 4xx     dropped, counted    as soon as there is a sample
401 403 3xx   dropped, counted    after the longest wait: an admin has to act
5xx 408 429   kept                after a wait that doubles each time
no answer     kept                after a wait that doubles each time
============  ==================  ===========================================

Waits have jitter, so that the agents of a fleet do not all return in the same second to
a controller that has just come back.  A message is logged once, not once a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from dial.agent.client import Kind, Outcome
from dial.agent.outbox import Outbox
from dial.types import AgentSample

_log = logging.getLogger(__name__)

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
"""A quarter of what the default outbox holds at 1 Hz: a controller that is back is found
before anything that it would still take is lost."""

_MOST_IN_A_POST = 10
"""A post is refused whole, so one stale sample takes at most nine good ones with it."""

_MOST_MESSAGES = 64
"""Distinct messages that are remembered as logged; a controller that puts the time in its
messages must fill neither memory nor log."""


class Post(Protocol):
    """Sends one body: :meth:`dial.agent.client.Client.post`, or a test's."""

    def __call__(self, body: bytes) -> Outcome:
        """Send it and say what became of it."""


def wait_s(failures: int, random: Random) -> float:
    """Return how long to wait after ``failures`` (1, 2, ...) failed attempts in a row.

    Half of the doubled wait is certain, the other half drawn: min(30, 2^(n-1)) s times a
    number in [0.5, 1).
    """
    # The exponent is bounded because 2.0 ** 1024 overflows after a few hours' outage.
    longest_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failures - 1, 16))
    return longest_s * (0.5 + 0.5 * random.random())


class Pusher:
    """Empties an outbox into a controller.

    Parameters
    ----------
    outbox
        Where samples wait.
    post
        Sends one body.
    encode
        Makes a body of samples.
    random
        Source of the jitter.
    """

    def __init__(
        self,
        outbox: Outbox,
        post: Post,
        encode: Callable[[Sequence[AgentSample]], bytes],
        random: Random,
    ) -> None:
        self._outbox = outbox
        self._post = post
        self._encode = encode
        self._random = random
        self._failures = 0
        self._logged: set[str] = set()
        self.delivered = 0
        """Samples the controller took."""
        self.refused = 0
        """Samples it refused, which were dropped."""

    def run(self) -> None:
        """Push until the outbox is closed; then once more, if the controller is there."""
        while True:
            self._outbox.wait()
            pause_s = self.step()
            if self._outbox.wait_closed(pause_s):
                break
        if pause_s == 0.0:
            self.step()

    def step(self) -> float:
        """Send what there is, until it is gone or an attempt fails.

        Returns
        -------
        float
            Seconds to wait before the next step; 0 for none.
        """
        while samples := self._outbox.take(_MOST_IN_A_POST):
            outcome = self._post(self._encode(samples))
            if outcome.kind is Kind.FAILED:
                self._outbox.put_back(samples)
                self._failures += 1
                if self._failures == 1:
                    _log.warning("controller: %s; samples are kept and sent later", outcome.message)
                return wait_s(self._failures, self._random)
            if self._failures:
                _log.info(
                    "controller: answers again after %d failed attempts; dropped so far: %d",
                    self._failures,
                    self._outbox.dropped,
                )
            self._failures = 0
            if outcome.kind is Kind.ACCEPTED:
                self.delivered += len(samples)
                continue
            self.refused += len(samples)
            self._complain(f"controller refused samples: {outcome.message}")
            if outcome.kind is Kind.DENIED:
                return LONGEST_WAIT_S * (0.5 + 0.5 * self._random.random())
        return 0.0

    def _complain(self, message: str) -> None:
        if message in self._logged or len(self._logged) >= _MOST_MESSAGES:
            return
        self._logged.add(message)
        _log.error("%s", message)
