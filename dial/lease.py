"""The lease: weights that DIAL wrote are good for as long as somebody renews them.

Problem
    A controller that is killed, or hangs, while load is shifted leaves weights behind that fit a
    neighbour of that moment.  The neighbour leaves, and nobody is there to put them back.

Rule
    Before weights that differ from the configured ones are written to the balancer, a small file
    says which, and until when they may stand without being renewed.  The controller renews it
    every tick in which it has read the balancer, and removes it when the configured weights are
    in force again.  ``dial watchdog`` puts the configured weights back when the lease has
    expired, and a controller that starts finds what the one before it left.

    A weight in force is *ours* when it is one that the lease names.  Only such weights are ever
    put back: what the admin has set meanwhile is his.  (Where nobody but DIAL can write weights,
    all that differ from the configured ones are ours.)  A lease names up to two weights of a
    server, the one in force and the one about to be written, so that it is right whenever its
    writer is killed.  What a weight is put back to is the balancer's own word at that moment:
    the configuration may have changed since.

Time
    By ``CLOCK_BOOTTIME``, which no administrator and no NTP can set, and which runs on while
    the machine sleeps; another boot of the machine is later than everything before it.

Source
    Gray and Cheriton, "Leases", SOSP 1989; gRPC's weighted round robin likewise drops weights
    that nobody has renewed (weight_expiration_period).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from dial.errors import DialError, SettingError
from dial.settings import Settings, describe
from dial.types import BalancerState

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that cannot be set: seconds since one boot of this machine."""

    boot: str
    """The kernel's random name of the boot."""
    since_boot_s: FiniteFloat

    @classmethod
    def now(cls) -> Moment:
        """The time now."""
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        return cls(boot, time.clock_gettime(time.CLOCK_BOOTTIME))

    def age_s(self, now: Moment) -> float:
        """Seconds passed until ``now``; infinite if the machine was booted in between."""
        passed_s = now.since_boot_s - self.since_boot_s
        return passed_s if self.boot == now.boot and passed_s >= 0.0 else float("inf")


@dataclass(frozen=True, slots=True)
class Lease:
    """Who wrote which weights, and how long they may stand.

    Attributes
    ----------
    service
        The pool's name at the load balancer.
    weights
        By server: its weight that is ours, or two while a new one is being written.
    renewed
        When.
    expires_s
        How long after that the weights may stand.
    pid
        Process id of the controller, for a person who reads the file.
    """

    service: str
    weights: dict[str, tuple[int, ...]]
    renewed: Moment
    expires_s: Annotated[FiniteFloat, Field(gt=0.0)]
    pid: int
    format: Literal[1] = 1

    def expired(self, now: Moment) -> bool:
        """Whether the weights should be put back."""
        return self.renewed.age_s(now) > self.expires_s

    def to_put_back(self, balancer: BalancerState) -> dict[str, int]:
        """Configured weights of the servers whose weight in force is ours.

        Drained servers too: back in service, they would still have our weight.
        """
        return {
            server.name: server.configured_weight
            for server in balancer.servers
            if server.weight != server.configured_weight
            and (balancer.meaning.sole_writer or server.weight in self.weights.get(server.name, ()))
        }


_LEASE = TypeAdapter(Lease)


class LeaseStore(Protocol):
    """Where a lease is kept."""

    def read(self) -> Lease | None:
        """The lease, or ``None`` if there is none; raises ``DialError`` where it is unreadable."""

    def write(self, lease: Lease) -> None:
        """Put ``lease`` in place of what is there; raises ``OSError`` where that fails."""

    def remove(self) -> None:
        """Remove the lease, if there is one."""


class LeaseFile:
    """A lease on disk, for those who run as the same user.

    Parameters
    ----------
    path : of the file; ``path.lock`` beside it stays when the lease is removed.
    service : the pool's name.
    """

    def __init__(self, path: Path, service: str) -> None:
        self.path = path
        self.service = service

    @classmethod
    def of(cls, settings: Settings) -> LeaseFile | None:
        """The file that is configured, if one is."""
        path = settings.lease.path
        return cls(path, settings.service) if path else None

    def beside(self, kind: str) -> Path:
        """Path of another file that belongs to this lease."""
        return self.path.with_name(f"{self.path.name}.{kind}")

    def read(self) -> Lease | None:
        """The lease, or ``None`` if there is none.

        Raises
        ------
        SettingError
            If it is the lease of another service.
        DialError
            If the file cannot be read or is no lease; the message names it.
        """
        try:
            lease = _LEASE.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DialError(f"lease {self.path}: {error.strerror}") from error
        except ValidationError as error:
            raise DialError(f"lease {self.path}: not a lease: {describe(error)}") from error
        if lease.service != self.service:
            raise SettingError(
                f"lease.path = {str(self.path)!r}: holds the lease of service {lease.service!r}; "
                f"service {self.service!r} needs a file of its own"
            )
        return lease

    def write(self, lease: Lease) -> None:
        """Put ``lease`` in place of what is there.

        Raises
        ------
        OSError
            If it cannot be written; what was there still is.
        """
        write_in_place(self.path, _LEASE.dump_json(lease))

    def remove(self) -> None:
        """Remove the lease, if there is one."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def sole_writer(self) -> Iterator[None]:
        """Be the only controller with this lease, while the context lasts.

        The lock is the kernel's: it ends with its process, however that ends.

        Raises
        ------
        DialError
            If another process has it, or the lock's file cannot be made.
        """
        path = self.beside("lock")
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DialError(f"lease {self.path}: cannot lock {path}: {error.strerror}") from error
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(file, 32, 0).decode(errors="replace").strip()
                raise DialError(
                    f"lease {self.path}: process {pid} writes the weights of service "
                    f"{self.service!r} already; one service has one controller"
                ) from None
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(file)


class LeaseHolder:
    """The controller's side: knows which weights in force are ours, and renews the lease.

    Parameters
    ----------
    service : the pool's name.
    expires_s : how long weights may stand without a renewal.
    file : where the lease is written; without one, all this is known to this process only.
    now : the time.
    """

    def __init__(
        self,
        service: str,
        expires_s: float,
        file: LeaseStore | None,
        now: Callable[[], Moment] = Moment.now,
    ) -> None:
        self.expires_s = expires_s
        self._service = service
        self._file = file
        self._now = now
        self._lease = self._of({})

    def take_over(self) -> None:
        """Go on from the lease that an earlier controller has left, if any.

        Raises
        ------
        SettingError
            If it is the lease of another service.
        DialError
            If the file cannot be read or is no lease.
        """
        found = self._file.read() if self._file else None
        if found is not None:
            self._lease = self._of(found.weights)

    @property
    def lapsed(self) -> bool:
        """Whether so much time has passed that others may have put our weights back."""
        return self._lease.expired(self._now())

    def to_put_back(self, balancer: BalancerState) -> dict[str, int]:
        """Configured weights of the servers whose weight in force is ours."""
        return self._lease.to_put_back(balancer)

    def all_ours(self, balancer: BalancerState) -> bool:
        """Whether there are weights of ours, and all that the balancer uses are in force."""
        ours = self._lease.weights
        return bool(ours) and all(
            server.weight in ours.get(server.name, (server.configured_weight,))
            for server in balancer.servers
            if server.usable
        )

    def renew(self, balancer: BalancerState, wanted: Mapping[str, int]) -> None:
        """Renew the lease for what is about to be in force; remove it when nothing is ours.

        Parameters
        ----------
        balancer : as just read.
        wanted : the weights that are wanted in force, by server; written after this.

        Raises
        ------
        OSError
            If the file cannot be written: then nothing may be written to the balancer either.
        """
        weights = {}
        for server in balancer.servers:
            ours = {server.weight} & {*self._lease.weights.get(server.name, ())}
            ours |= {wanted.get(server.name, server.configured_weight)}
            if differing := ours - {server.configured_weight}:
                weights[server.name] = tuple(sorted(differing))
        self._lease = self._of(weights)
        if self._file is None:
            return
        if weights:
            self._file.write(self._lease)
        else:
            self._file.remove()

    def _of(self, weights: dict[str, tuple[int, ...]]) -> Lease:
        return Lease(self._service, weights, self._now(), self.expires_s, os.getpid())


def write_in_place(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; readers see it whole, or what was there before.

    It is not forced to the disk.  Who needs it survives this process, not this machine.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    beside = path.with_name(f"{path.name}.new")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise
