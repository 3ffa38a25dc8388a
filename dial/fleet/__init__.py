"""Fleet mode: agents, readers beside the balancers and a group of controllers, over NATS.

One machine needs none of this: there a controller reads its balancer and is posted to by its
agents.  Where one is outgrown, or must not be the only one, the same parts are put together
differently, and an existing engine carries what goes between them::

    agent ------ samples ------.
                                v
    balancer <- reader - windows -> NATS -> controllers, one of which leads the service
                  ^                            |
                  '---- plan (key-value) ------'

:mod:`dial.fleet.reader`
    Beside each balancer: sums up its log, publishes windows, applies plans.
:mod:`dial.fleet.member`
    A controller of the group: stands by until it leads, then ticks as any controller does.
:mod:`dial.fleet.election`
    One leader per service: a key with a time to live, taken and renewed by compare-and-set.
:mod:`dial.fleet.balancer`
    All readers of a service as one :class:`~dial.adapter.Adapter`: rates added, percentiles
    merged, one plan to all.
:mod:`dial.fleet.sketch`
    Response times in buckets that merge, with a bound on their error.

Everything from the adapter's contract up (windows, ``step``, guards, lease, checkpoint) is what
runs on one machine; only the transport differs.  Why NATS, and what is guaranteed when:
``docs/fleet.md`` and ``docs/adr/0037-fleet-over-nats.md``.
"""

from __future__ import annotations

from importlib.util import find_spec

from dial.errors import SettingError


def require_extra() -> None:
    """Refuse where NATS's client is not installed; the rest of this package imports it.

    Raises
    ------
    SettingError
        That says how to install it.
    """
    if find_spec("nats") is None:
        raise SettingError("fleet.servers: needs NATS's client; pip install 'dial-lb[fleet]'")
