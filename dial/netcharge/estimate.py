"""Without eBPF: packets times a cost that the machine's own record calibrates.

Problem
    ``/proc/stat`` says how long all softirqs took on the machine, and interfaces count packets of
    a network namespace.  What did the packets of one namespace cost?

Formula
    cost = sum of softirq time / sum of packets of the machine, both fading over about a minute;
    the namespace's charge is its packets times that.

Regimes
    no record yet
        Iron's Table 1: 1.67 us for a TCP packet received.
    few packets
        Timers and disks cause softirqs too, so an interval with fewer than
        :data:`LEAST_PACKETS_PER_S` teaches nothing.
    ticks
        Kernels that account by ticks see 4 or 10 ms at a time.  One interval is coarse, a minute
        of them is not: whether a tick falls into a softirq is a fair sample.

Source
    Khalid et al., NSDI 2018, 4.2 and Table 1; there they warn that a fixed cost is off by up to
    2.4 between kinds of traffic.  A calibrated one is off by as much for whoever's kind differs
    from the machine's mean.
"""

from __future__ import annotations

from dataclasses import dataclass

IRON_TCP_COST_S = 1.67e-6
LEAST_PACKETS_PER_S = 1_000.0
_MEMORY_S = 60.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fading sums from which the cost of a packet follows.

    Examples
    --------
    >>> calibration = Calibration().learn(softirq_s=0.02, packets=10_000, interval_s=1.0)
    >>> calibration.cost_s
    2e-06
    """

    softirq_s: float = 0.0
    packets: float = 0.0

    @property
    def cost_s(self) -> float:
        """CPU seconds a packet."""
        return self.softirq_s / self.packets if self.packets > 0.0 else IRON_TCP_COST_S

    def learn(self, *, softirq_s: float, packets: float, interval_s: float) -> Calibration:
        """Return the calibration with one more interval of the whole machine."""
        if interval_s <= 0.0 or packets / interval_s < LEAST_PACKETS_PER_S:
            return self
        fade = max(0.0, 1.0 - interval_s / _MEMORY_S)
        return Calibration(self.softirq_s * fade + softirq_s, self.packets * fade + packets)


def parse_packets(text: str) -> int:
    """Return packets received and sent in ``/proc/net/dev``, the loopback's left out.

    A loopback packet is received by whoever sends it, in its own context, where its own accounts
    show it.

    Raises
    ------
    ValueError
        If a line has fewer than its sixteen counters.
    """
    packets = 0
    for line in text.splitlines()[2:]:
        name, _, rest = line.rpartition(":")
        fields = rest.split()
        if len(fields) < 16 or not (fields[1].isdigit() and fields[9].isdigit()):
            raise ValueError(f"no sixteen counters in {line[:60]!r}")
        if name.strip() != "lo":
            packets += int(fields[1]) + int(fields[9])
    return packets
