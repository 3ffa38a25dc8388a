"""The exceptions of the project, as one tree.

Every message names what is wrong, where, and what is allowed, in that order, because it
is read at night by somebody who has never seen the code::

    DialError
    |-- SettingError        a configuration value out of range or of the wrong kind
    |-- ModelError          a model file that must not be used
    |-- RecordingError      a recording that cannot be replayed
    |-- IntakeError         a sample or command from outside that was refused
    |-- BalancerError       the load balancer could not be read or written
    |   |-- BalancerUnreachable   nobody answers at the socket
    |   |-- BalancerRefused       it answered, and said no
    |   |-- UnknownService        it has no pool of that name
    |   |-- StalePlan             a newer plan was already applied
    |   `-- Deposed               another controller of the fleet leads the service
    |-- FleetError          the fleet's NATS servers cannot be reached or used
    |-- LimitError          a limit inside the VM that cannot or must not be written
    `-- LabError            the emulated machines cannot be built here
        `-- LabUnquiet            somebody outside is at work there now
"""

from __future__ import annotations


class DialError(Exception):
    """Base of all errors a caller may want to catch."""


class SettingError(DialError):
    """A setting that cannot be used: names the setting, its value and what is allowed."""


class ModelError(DialError):
    """A model file with a wrong checksum, version or feature list."""


class RecordingError(DialError):
    """A recording that is truncated, of another format, or not ours."""


class IntakeError(DialError):
    """Something posted from outside was refused.

    ``reason`` is its counter's label, ``where`` the field at fault, if it is one field's.
    """

    def __init__(self, reason: str, message: str, where: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.where = where


class BalancerError(DialError):
    """The load balancer could not be read or written."""


class BalancerUnreachable(BalancerError):
    """Nobody answers at the configured address."""


class BalancerRefused(BalancerError):
    """The load balancer answered and refused."""


class UnknownService(BalancerError):
    """The load balancer has no pool of the configured name."""


class StalePlan(BalancerError):
    """A plan older than the one in effect was offered."""


class LimitError(DialError):
    """A limit inside the VM that cannot be written, or must not be."""


class Deposed(BalancerError):
    """Another controller of the fleet leads the service; nothing was written."""


class FleetError(DialError):
    """The fleet's NATS servers cannot be reached, or do not offer what is needed."""


class LabError(DialError):
    """The lab cannot run here; the message says what it needs."""


class LabUnquiet(LabError):
    """Somebody outside the lab takes what it is to share out; it may be quiet again soon."""
