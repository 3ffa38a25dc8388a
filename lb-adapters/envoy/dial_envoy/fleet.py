"""Several Envoys asked at once, of which some may be away.

An Envoy whose computer is gone gives no answer, not even a refusal, so that each question costs its
whole time limit.  Who does not answer soon after another one did is therefore asked in the
background, and waited for again when it has answered.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from dial.errors import BalancerUnreachable
from dial_envoy.admin import AdminClient, View

SOON_S = 1.0
"""For the others, when one has answered.  An answer takes milliseconds (of ten thousand hosts a
tenth of a second), and a lease lasts ten seconds."""


class Fleet:
    """The Envoys of one service.

    Parameters
    ----------
    admins
        Admin interface of each.
    service
        Name of the cluster.
    events
        Counted here: who did not answer.
    """

    def __init__(self, admins: Sequence[AdminClient], service: str, events: Counter[str]) -> None:
        self.admins = tuple(admins)
        self._service = service
        self._events = events
        self._away: dict[AdminClient, asyncio.Task[View]] = {}

    async def views(self) -> Sequence[View]:
        """Of every Envoy that answers, in the order of the options; at least one.

        Raises
        ------
        BalancerUnreachable
            If none does.
        BalancerRefused, UnknownService
            If one of them says so.
        """
        asked = self._ask()
        waited_for = {task for admin, task in asked.items() if admin not in self._away}
        await _wait(waited_for or set(asked.values()))
        self._away = {admin: task for admin, task in asked.items() if not task.done()}
        answers = [task for task in asked.values() if task.done()]
        views = []
        for answer in answers:
            error = answer.exception()
            if error is None:
                views.append(answer.result())
            elif not isinstance(error, BalancerUnreachable):
                raise error
        if not views:
            raise next(error for one in answers if (error := one.exception()) is not None)
        self._events["admin_unreachable"] += len(self.admins) - len(views)
        return views

    def _ask(self) -> dict[AdminClient, asyncio.Task[View]]:
        """A question to each; to one that is away the one that is still open, or a new one."""
        asked = {}
        for admin in self.admins:
            before = self._away.get(admin)
            if before is None or before.done():
                if before is not None and (before.cancelled() or before.exception() is None):
                    del self._away[admin]  # it is back, or was not asked to its end
                asked[admin] = asyncio.create_task(admin.view(self._service))
            else:
                asked[admin] = before
        return asked

    async def aclose(self) -> None:
        """Ask no more, and give the connections back."""
        for task in self._away.values():
            task.cancel()
        await asyncio.gather(*self._away.values(), return_exceptions=True)
        self._away.clear()
        for admin in self.admins:
            await admin.aclose()


async def _wait(tasks: set[asyncio.Task[View]]) -> None:
    """Until one has answered, and a moment longer for the others."""
    waiting, answered = tasks, False
    try:
        while waiting and not answered:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            answered = any(task.exception() is None for task in done)
        if waiting:
            await asyncio.wait(waiting, timeout=SOON_S)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
