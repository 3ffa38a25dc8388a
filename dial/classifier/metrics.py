"""What features are made of: the metrics of one interval, a column of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from dial.columns import Floats
from dial.queueing import idle_fraction

LINES = ("cpu_time", "iowait", "io_pressure", "disk_busy", "t_c", "softirq")
"""Metrics that load explains, in the order of their columns."""

MEANS = (
    "requests",
    "cpu_wait",
    "cpu_wait_squared",
    "throttled",
    "memory_reload",
    "deferral",
    "own_services",
    "disk_wait",
    "disk_wait_squared",
    "disk_rate",
)
"""Metrics that it does not explain, in the order of their columns; new ones come last."""

WINDOW_FIELDS = ("requests", "errors", "rate_per_s", "served_per_s", "t_c_ms")
WAITS = ("cpu_steal_cores", "cpu_unaccounted_cores", "run_queue_wait_cores")
SAMPLE_FIELDS = (
    "cpu_time_cores",
    *WAITS,
    "cpu_iowait_cores",
    "psi_io_some_fraction",
    "disk_busy_fraction",
    "disk_bytes_per_s",
    "throttled_fraction",
    "memory_reload_ns",
    "deferral_fraction",
    "own_services_cores",
    "net_softirq_cores",
    "cpu_capacity_cores",
    "targets_missed_s",
    "tcp_retransmits_per_s",
    "tcp_segments_out_per_s",
)
"""What is read of a :class:`~dial.types.RequestWindow` and of an
:class:`~dial.types.AgentSample`."""

LEAST_CORES = 0.02
"""A sample of 1 s in ticks of 10 ms is off by 0.01 core; agents themselves take 0.001."""
LEAST_FRACTION = 0.02
"""Of time waiting: an idle system's own writing makes up to 0.01 of a 2 s interval."""
LEAST_SEGMENTS_PER_S = 10.0
"""So that one segment sent again by an idle VM is not a tenth of all."""


_FIELD_OF = {
    "cpu_time": "cpu_time_cores",
    "iowait": "cpu_iowait_cores",
    "io_pressure": "psi_io_some_fraction",
    "disk_busy": "disk_busy_fraction",
    "throttled": "throttled_fraction",
    "memory_reload": "memory_reload_ns",
    "deferral": "deferral_fraction",
    "targets_missed": "targets_missed_s",
    "disk_rate": "disk_bytes_per_s",
}
"""Metrics that are a field of a sample as it is."""

_PART_OF_THE_CPU = {"own_services": "own_services_cores", "softirq": "net_softirq_cores"}
"""Those that are a field over what the VM may use."""


class Metrics:
    """One interval of n backends: ``metrics[name]`` is (n,), NaN where the metric is missing.

    Parameters
    ----------
    windows, samples : (n,) of each of ``WINDOW_FIELDS`` and ``SAMPLE_FIELDS``; NaN where one is
        missing.
    rho_fg : (n,) the backends' own utilisation; where it is NaN T_c is taken as it is.

    Attributes
    ----------
    requests
        (n,) requests of the interval.
    served_per_s
        (n,) requests served; those that arrived where it is not known.
    """

    def __init__(
        self, windows: Mapping[str, Floats], samples: Mapping[str, Floats], rho_fg: Floats
    ) -> None:
        self._windows = windows
        self._samples = samples
        self._rho_fg = rho_fg
        self.requests = windows["requests"]
        served_per_s = windows["served_per_s"]
        self.served_per_s = np.where(np.isnan(served_per_s), windows["rate_per_s"], served_per_s)

    def __getitem__(self, name: str) -> Floats:
        if name in _FIELD_OF:
            return self._samples[_FIELD_OF[name]]
        if name == "requests":
            return self._windows["rate_per_s"]
        if name == "t_c":
            return self._windows["t_c_ms"] * self.idle
        if name in _PART_OF_THE_CPU:
            return self._part(_PART_OF_THE_CPU[name])
        wait = self._disk_wait() if name.startswith("disk_wait") else self._cpu_wait()
        return wait**2 if name.endswith("_squared") else wait

    @cached_property
    def idle(self) -> Floats:
        """(n,) 1 - rho_fg."""
        return idle_fraction(self._rho_fg)

    def _cpu_wait(self) -> Floats:
        """CPU time wanted and not given, for each CPU second used."""
        # Steal, time unaccounted for and run-queue wait never count the same time twice: what is
        # known of them is a lower bound.
        waits = np.array([self._samples[name] for name in WAITS])
        known = ~np.isnan(waits)
        waited = np.where(known.any(axis=0), np.where(known, waits, 0.0).sum(axis=0), np.nan)
        cpu_wait: Floats = waited / (self._samples["cpu_time_cores"] + LEAST_CORES)
        return cpu_wait

    @cached_property
    def waits_for_disk(self) -> Floats:
        """(n,) of the time, in which somebody waits for the disk; where PSI is off, it is busy."""
        pressure = self._samples["psi_io_some_fraction"]
        return np.where(np.isnan(pressure), self._samples["disk_busy_fraction"], pressure)

    def _disk_wait(self) -> Floats:
        """Time in which somebody waits for the disk, s for each byte that is read or written."""
        rate = self._samples["disk_bytes_per_s"]
        wait: Floats = self.waits_for_disk / np.where(rate > 0.0, rate, np.nan)
        return wait

    def _part(self, cores: str) -> Floats:
        """As :func:`dial.classifier.own.part` has it."""
        capacity = self._samples["cpu_capacity_cores"]
        may_use = np.where(capacity > 0.0, capacity, np.nan)
        part: Floats = np.minimum(1.0, self._samples[cores] / may_use)
        return part

    @property
    def errors_fraction(self) -> Floats:
        """(n,) as the feature of that name."""
        requests = self._windows["requests"]
        fraction: Floats = self._windows["errors"] / np.where(requests == 0.0, np.nan, requests)
        return fraction

    @property
    def retransmit_fraction(self) -> Floats:
        """(n,) as the feature of that name."""
        sent = self._samples["tcp_segments_out_per_s"] + LEAST_SEGMENTS_PER_S
        fraction: Floats = self._samples["tcp_retransmits_per_s"] / sent
        return fraction
