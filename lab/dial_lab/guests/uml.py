"""A tenant in a kernel of its own: Debian's ``user-mode-linux`` on each emulated machine.

The problem: under one kernel for all machines a tenant's ``/proc`` shows what no guest sees.
The neighbour's time stands in the tenant's run-queue wait and in pressure files.  A guest has
a scheduler, a clock and a ``/proc`` of its own, and of the time that others take from its
whole kernel they hold nothing but gaps.

User-mode Linux is that kernel as an ordinary program: it runs in the machine's ``fg`` group
and on the machine's core, needs neither an image (its root is this computer's, read-only) nor
virtualisation by hardware, and boots in 1.5 s of CPU, mostly its own checksum benchmarks.

    balancer (root) 10.214.N.1 ======== 10.214.N.2 guest        one tap device each

What such a guest sees of a CPU neighbour: no steal (always 0), no pressure, no
``/proc/schedstat``; its clock goes on while it does not run.  It takes that time for time in
which it was busy.  A late tick is counted once, as usr, and the ticks that it should have been
are counted nowhere: ``/proc/stat`` falls short of the time that passed, which idle never does.
Measured on one guest (2 ms a request; the neighbour told to take 0, 0.3, 0.5, 0.7), shares of
wall time; *not idle* is what is left of idle, *a request* is that over the rate, ms:

    load          quiet               0.3                 0.5                 0.7
                  usr  short request  usr  short request  usr  short request  usr  short request
    none          0.01  0.00          0.00  0.01          0.00  0.01          0.01  0.00
    20 a second   0.13  0.03   7.4    0.15  0.03   8.2    0.21  0.05  12.3    0.29  0.51  38.0
    40 a second   0.29  0.04   7.7    0.55  0.02  13.6    0.64  0.18  19.5
    as many as    0.99  0.01  10.5    0.97  0.03  15.9    0.69  0.31  21.7    0.43  0.57  35.3
    it can

So the time not idle for a request stretches by 1 / (1 - rho_bg) when the guest is busy (0.34,
0.52 and 0.70 by the last line, and by the throughput itself), and by less when a request fits
into what the machine has saved up of its quota.  A thread that sleeps wakes late, too: 0.3 ms
idle and quiet, 0.7, 1.8, 3.2 and 16 ms on average at 20 a second, but also 1.9 ms at 70 a second
and 4.1 saturated without any neighbour, because a machine of 0.3 of a core is late by itself.

What differs from a guest on a hypervisor:

- a system call takes about 70 times as long, so that a request that does little but system
  calls would measure the emulation; loops run at the speed of the computer;
- the clock of CPU time (CLOCK_THREAD_CPUTIME_ID) has a step of 10 ms, and counts stolen time
  in full.  So the application is given an amount of work in passes of a loop, not in CPU time
  (see :mod:`dial_lab.app`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dial.errors import LabError
from dial_lab import links
from dial_lab.addresses import Address, wait_for_port
from dial_lab.guests import enter, init
from dial_lab.processes import Children
from dial_lab.topology import Machine


class TooManyRegisters(LabError):
    """The guests' kernel cannot keep this CPU's registers, so that none of its processes can run.

    Debian 12's (6.1) has no room for those of AMX, with which a process has 11 KiB of them.
    """


KERNEL = "linux.uml"
"""Of the package; ``linux`` is an alternative that may be another one's."""

MEMORY = "256M"
"""Of a guest.  Kernel and first process use 30 MiB of it, application and agent 20 each."""

BOOT_WAIT_S = 40.0
"""A boot takes 1 to 1.5 s of CPU of a machine that has 0.3 of a core: 3 to 4 s measured."""

DIRECTORY = Path("/run/dial-lab-guests")
"""Of the guests' management sockets: always the same, so that what a crash left goes."""

_TOO_MANY_REGISTERS = "ptrace set fp regs failed"
"""What the kernel says before it panics, its first process having begun."""

_ENTER_PORT = 2000
_PREFIX_LENGTH = 30
_DEVICE = "vec0"
_QUEUE_PACKETS = 64
"""Of the guest's network device; the kernel warns of more (NAPI_POLL_WEIGHT)."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The guest of one machine.

    Attributes
    ----------
    machine
        Its name, which ends in its number: the third byte of its addresses.
    """

    machine: str

    @property
    def tap(self) -> str:
        """The balancer's end of the guest's network."""
        return f"{links.PREFIX}{self.machine}"

    @property
    def host_address(self) -> str:
        """Where this computer is reached from the guest."""
        return self._address(1)

    @property
    def address(self) -> str:
        """Where the guest is reached."""
        return self._address(2)

    def _address(self, last: int) -> str:
        number = self.machine[len(self.machine.rstrip("0123456789")) :]
        return f"10.214.{int(number)}.{last}"

    @property
    def enter(self) -> tuple[str, ...]:
        """Start of a command line that runs the rest of it in the guest."""
        program = (sys.executable, "-I", "-S", str(Path(enter.__file__)))
        return (*program, self.address, str(_ENTER_PORT))

    def kernel_line(self) -> list[str]:
        """The command line of the kernel, first process included."""
        return [
            # Told to end, it ends what it has started; killed, it leaves that to the next lab.
            *("setpriv", "--pdeathsig", "TERM", "--"),
            KERNEL,
            f"umid={self.machine}",
            f"uml_dir={DIRECTORY}",
            f"mem={MEMORY}",
            *("rootfstype=hostfs", "rootflags=/", "ro"),
            f"{_DEVICE}:transport=tap,ifname={self.tap},depth={_QUEUE_PACKETS}",
            *("con=null", "con0=null,fd:1", "ssl=null", "quiet", "noreboot", "panic=1"),
            f"init={sys.executable}",
            *("--", "-I", "-S", str(Path(init.__file__))),
            *(self.machine, _DEVICE, self.address, str(_PREFIX_LENGTH)),
            *(self.host_address, str(_ENTER_PORT)),
        ]

    def start(self, children: Children, machine: Machine) -> subprocess.Popen[bytes]:
        """Make the network and start the kernel; it boots meanwhile.

        Raises
        ------
        LabError
            If no tap device is to be had.
        """
        links.run("ip", "tuntap", "add", "dev", self.tap, "mode", "tap", "vnet_hdr")
        host = f"{self.host_address}/{_PREFIX_LENGTH}"
        links.run("ip", "address", "add", host, "dev", self.tap)
        links.run("ip", "link", "set", self.tap, "up")
        return children.start(
            f"guest-{self.machine}",
            self.kernel_line(),
            cores=[machine.core],
            join=machine.tenant_files(),
        )

    def await_boot(self, children: Children, wait_s: float = BOOT_WAIT_S) -> None:
        """Wait until programs can be started in the guest.

        Raises
        ------
        TooManyRegisters
            If this computer's CPU has more than the kernel can keep.
        LabError
            If it does not come to that in time, or the kernel ends.
        """
        try:
            wait_for_port(Address(self.address, _ENTER_PORT), children, wait_s)
        except LabError as error:
            log = children.log_dir / f"guest-{self.machine}.log"
            if _TOO_MANY_REGISTERS in log.read_text(errors="replace"):
                raise TooManyRegisters(
                    f"--guest uml: guest {self.machine} did not boot: this computer's CPU has more "
                    f"registers than {KERNEL} can keep, as those with AMX have ({log}); "
                    "allowed here: --guest shared"
                ) from error
            raise LabError(f"guest {self.machine} did not boot: {error}") from error


def _check() -> None:
    if shutil.which(KERNEL) is None:
        raise LabError(
            f"--guest uml: {KERNEL} is not installed; `make setup-dev` installs it "
            "(package user-mode-linux); allowed without it: --guest shared"
        )
    if not Path("/dev/net/tun").exists():
        raise LabError("--guest uml: no /dev/net/tun; the guest's network needs tap devices")
    # The kernel splits its command line at blanks, and knows no way to quote in `init=`.
    for path in (sys.executable, init.__file__):
        if " " in path:
            raise LabError(f"--guest uml: {path}: a path with blanks cannot be a guest's program")


@contextmanager
def guests(machines: Sequence[Machine], children: Children) -> Iterator[Mapping[str, Guest]]:
    """Boot a guest on every machine at once; what a crashed lab left goes first.

    Only one lab at a time may do this.

    Raises
    ------
    TooManyRegisters
        If this computer's CPU has more than the guests' kernel can keep.
    LabError
        If there is no such kernel here, or one of them does not boot.
    """
    _check()
    _clear()
    built = {machine.name: Guest(machine.name) for machine in machines}
    with ExitStack() as undo:
        undo.callback(_clear)
        DIRECTORY.mkdir(mode=0o700)
        for machine in machines:
            kernel = built[machine.name].start(children, machine)
            undo.callback(children.stop, kernel)
        for guest in built.values():
            guest.await_boot(children)
        yield built


def _clear() -> None:
    links.remove_all()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
