"""The values that flow from log line and /proc sample to weight.

Everything here is immutable and made of the standard library only, so that every other
part may import it and a recording of it replays.  The order of the classes is the order
of the flow::

    RequestWindow, AgentSample, ServerState -> Observation -> Verdict -> Plan -> ApplyReport

Symbols of the paper (Javadi, Gandhi: DIAL, IEEE TCC 2019) that are kept as names:

``T_x``
    The x-th percentile of the response time of a backend in one interval
    (``t_x_ms``).  Response time is measured at the load balancer, from the moment it
    holds the request to the last byte of the answer, or to the first where the adapter is
    told so.
``T_c``
    The x-th percentile of the time to connect to a backend (``t_c_ms``).
``rho_fg``
    The tenant's own use of a resource, as a fraction of its peak (0 to 1).
``rho_bg``
    The neighbour's use of it: the share of the resource's capacity that the tenant has
    lost, 1 - (saturation throughput contended / quiet).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from dial.rows import InRows


@dataclass(frozen=True, slots=True)
class NoData:
    """A measurement that is not there, and why.

    Absence is a value of its own: never 0, -1 or NaN, each of which some code
    downstream would one day take for a measurement.
    """

    reason: str


Measured = float | NoData
"""A finite float in the unit of the field's name, or the reason for its absence."""

Named = str | NoData
"""One line of printable text, or the reason for its absence."""


class Cause(StrEnum):
    """Why a backend is slower than expected: the classes of the classifier."""

    NONE = "none"
    """As fast as expected at its present load."""
    LOAD = "load"
    """The tenant's own load changed; nobody takes anything (the paper's delta-load)."""
    CPU = "cpu"
    NET = "net"
    DISK = "disk"
    LLC = "llc"
    INTRA_APP = "intra-app"
    """The application blocks itself (a lock, a pool); its resources are idle."""
    OWN_SERVICES = "own-services"
    """Other services of the tenant's in the same VM take its CPU, or miss their own targets."""
    SOFTIRQ = "softirq"
    """Packets to the VM take its CPU, beyond what the present load explains."""
    SELF_LIMITED = "self-limited"
    """The VM's own quota or the provider's allowance throttles it."""
    UNKNOWN = "unknown"
    """Slower than expected, but the signals needed to say why are missing."""

    @property
    def blames_nobody(self) -> bool:
        """True when nothing is taken from the backend: it is as fast as its own load lets it be."""
        return self in (Cause.NONE, Cause.LOAD)

    @property
    def is_contention(self) -> bool:
        """True when a neighbour takes a hardware resource."""
        return self in (Cause.CPU, Cause.NET, Cause.DISK, Cause.LLC)

    @property
    def costs_capacity(self) -> bool:
        """True when the backend can serve less than before, so that load is better elsewhere.

        Whoever takes it: the VM's own quota, its other services or the application's waiting
        for itself leave no more than a neighbour would.
        """
        return self.is_contention or self.is_own_doing or self is Cause.SELF_LIMITED

    @property
    def is_own_doing(self) -> bool:
        """True when a signal of the tenant's own measures what is lost inside the VM."""
        return self in (Cause.INTRA_APP, Cause.OWN_SERVICES, Cause.SOFTIRQ)


class Mode(StrEnum):
    """What the controller does with its plans."""

    SHADOW = "shadow"
    """Compute and show, write nothing (the default)."""
    ENFORCE = "enforce"
    """Write the weights to the load balancer."""
    FROZEN = "frozen"
    """Enforce, but an operator has ordered that nothing be written until further notice."""


# ---------------------------------------------------------------- what was seen


@dataclass(frozen=True, slots=True)
class RequestWindow:
    """One backend's requests that ended within one tick, as the balancer logged them."""

    requests: int
    """Requests that ended, errors included."""
    errors: int
    """Of those, answered 5xx or broken off by the server or for want of one.

    Their times are in no percentile: a fast error must not make a backend look fast.
    """
    rate_per_s: float
    """Requests that arrived per second over the tick."""
    t_x_ms: Measured
    """The x-th percentile of the response time of the requests that succeeded."""
    t_x_requests: int
    """How many requests ``t_x_ms`` rests on, or would if there were enough.

    More than ``requests`` where a backend gets so few that it takes several ticks.
    """
    t_mean_ms: Measured
    """Their mean response time."""
    t_c_ms: Measured
    """The x-th percentile of the connect time, of new connections only."""
    served_per_s: Measured = field(default=NoData("not recorded"), kw_only=True)
    """Requests that ended per second, over the time that the sample covers.

    Fewer than arrived while a queue grows.  The default is what recordings of before this
    field say of it.
    """


@dataclass(frozen=True, slots=True)
class AgentSample:
    """What the tenant saw inside one VM over one interval.

    Rates are per second of wall time: ``cores`` is CPU seconds a second, a ``fraction``
    is of wall time and lies in [0, 1].  Fields are keyword-only in spirit: add freely,
    the wire format carries names.
    """

    at_s: float
    """End of the interval, seconds since the epoch by the VM's clock."""
    interval_s: float
    cpu_usr_cores: Measured
    cpu_sys_cores: Measured
    cpu_softirq_cores: Measured
    cpu_iowait_cores: Measured
    cpu_steal_cores: Measured
    """Time the hypervisor gave to others while this VM wanted to run.

    Zero proves nothing: many hypervisors do not fill it in.
    """
    cpu_unaccounted_cores: Measured = field(default=NoData("not recorded"), kw_only=True)
    """Time that passed and that the VM's kernel counted as nothing, idle included.

    What steal would be where the hypervisor reports none.
    """
    net_softirq_cores: Measured = field(default=NoData("not recorded"), kw_only=True)
    """Time in softirqs for the VM's own packets, whomever they interrupted."""
    net_softirq_shown_cores: Measured = field(default=NoData("not recorded"), kw_only=True)
    """Time in the network's softirqs that user and system time above hold already, for whose
    packets ever."""
    cpu_capacity_cores: Measured
    """CPU the VM may use when nobody contends for it."""
    run_queue_wait_cores: Measured
    """Time the application's threads were runnable but did not run, summed over them."""
    psi_cpu_some_fraction: Measured
    psi_io_some_fraction: Measured
    psi_io_full_fraction: Measured
    psi_memory_some_fraction: Measured
    memory_reload_ns: Measured = field(default=NoData("not recorded"), kw_only=True)
    """Wait for a cache line that was last used some milliseconds ago, beyond that for a near one.

    Means something beside the same VM's quiet past only.  The default is what recordings of
    before this field say of it.
    """
    throttled_fraction: Measured
    """Fraction of the scheduler's periods in which the VM's *own* quota throttled it."""
    deferral_fraction: Measured = field(default=NoData("not recorded"), kw_only=True)
    """T_d / T_e of pBox: of the time that the application's activities took, the part in which they
    waited for one another (a lock, a buffer, a ticket)."""
    interference_level: Measured = field(default=NoData("not recorded"), kw_only=True)
    """T_f = T_d / (T_e - T_d) of pBox: waiting for one another over all else, 0 and up."""
    top_resource: Named = field(default=NoData("not recorded"), kw_only=True)
    """What most of that waiting was for, as the application or its database names it."""
    own_services_cores: Measured = field(default=NoData("not recorded"), kw_only=True)
    """CPU time that other services in this VM took from the one behind the balancer: what they
    used, or for how long their shares of the VM kept that one from running, if that is more."""
    targets_missed_s: Measured = field(default=NoData("not recorded"), kw_only=True)
    """How long services in this VM have missed their latency targets although what the VM has was
    divided anew: load has to go.  It stays until all have been met for a minute, and is 0 while
    no load has to go."""
    tcp_segments_out_per_s: Measured
    tcp_retransmits_per_s: Measured
    disk_busy_fraction: Measured
    disk_bytes_per_s: Measured
    net_rx_bytes_per_s: Measured
    net_tx_bytes_per_s: Measured
    agent_cpu_cores: Measured
    """What the agent itself costs."""
    agent_rss_mib: Measured

    @property
    def cpu_time_cores(self) -> Measured:
        """User and system CPU time together, and what they lack of the network's processing.

        Or why one of the first two is missing.
        """
        if isinstance(self.cpu_usr_cores, NoData):
            return self.cpu_usr_cores
        if isinstance(self.cpu_sys_cores, NoData):
            return self.cpu_sys_cores
        used = self.cpu_usr_cores + self.cpu_sys_cores
        if isinstance(self.net_softirq_cores, NoData):
            return used
        shown = self.net_softirq_shown_cores
        return max(
            0.0, used + self.net_softirq_cores - (0.0 if isinstance(shown, NoData) else shown)
        )


METRIC_NAMES: tuple[str, ...] = tuple(
    f.name for f in fields(AgentSample) if f.name not in ("at_s", "interval_s", "top_resource")
)
"""The measured fields of an :class:`AgentSample`, all numbers, in order."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """One backend as the load balancer itself reports it."""

    name: str
    weight: int
    """The weight in force now, on the scale of :class:`WeightMeaning`."""
    configured_weight: int
    """The weight in the balancer's own configuration: what a plan is undone to."""
    usable: bool
    """Up and not drained or in maintenance by the admin."""
    in_flight: int
    requests_total: int
    """Counter since the balancer's start; tells lost log lines from missing traffic."""
    errors_total: int


class WeightKind(StrEnum):
    """What a balancer's policy makes of a weight."""

    REQUESTS = "requests"
    """A weight is a share of requests (round robin), after ``in_flight_bias``."""
    CONCURRENCY = "concurrency"
    """A weight is a share of requests in flight (least connections)."""
    SERVICE_RATE = "service-rate"
    """A weight is a service rate: a request goes where (requests in flight + 1) / weight is least,
    to idle backends too (shortest expected delay)."""
    DRAW = "draw"
    """A weight is a probability of being drawn, before load is compared (random)."""


@dataclass(frozen=True, slots=True)
class WeightMeaning:
    """How an adapter's weights are to be read, declared by the adapter itself."""

    kind: WeightKind
    minimum: int
    """Smallest weight that still receives traffic."""
    maximum: int
    zero_drains: bool
    """Whether weight 0 takes a backend out (HAProxy) or is refused (Envoy)."""
    probe: str | None = None
    """How a backend without traffic can be probed, in the admin's words, if at all."""
    in_flight_bias: float = 0.0
    """b where a backend's share of requests goes by weight / (requests in flight + 1)^b (Envoy's
    least request); 0 is a plain round robin."""
    balancers: int = 1
    """Balancers among which requests are spread, each of which counts those in flight by itself."""
    sole_writer: bool = False
    """Whether nobody but DIAL can set weights: what differs from the configured ones is then what
    an earlier controller left, and nobody else could put it back."""


@dataclass(frozen=True, slots=True)
class BalancerState:
    """One reading of the load balancer."""

    epoch: str
    """Changes when the balancer was restarted or reloaded, and weights may be lost."""
    algorithm: str
    meaning: WeightMeaning
    servers: tuple[ServerState, ...]


@dataclass(frozen=True, slots=True)
class Override:
    """A weight that an operator gave to one backend, for a time."""

    backend: str
    weight: int
    until_s: float
    """By the controller's wall clock; the first tick after it goes on without."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What operators have ordered, as far as it holds in one tick."""

    frozen_since_s: float | None = None
    """By the controller's wall clock; ``None`` while nothing is frozen."""
    overrides: tuple[Override, ...] = ()
    """One a backend at most, by name."""

    @property
    def frozen(self) -> bool:
        """Whether weights stay as they are."""
        return self.frozen_since_s is not None


NO_ORDERS = Orders()


@dataclass(frozen=True, slots=True)
class BackendObservation:
    """Everything known of one backend for one tick."""

    name: str
    window: RequestWindow
    sample: AgentSample | NoData
    server: ServerState


@dataclass(frozen=True, slots=True)
class Observation(InRows[BackendObservation]):
    """All that can change a plan, for one tick: the only input of ``step`` but its state.

    Raises nothing by itself; :mod:`dial.telemetry` builds it checked.
    """

    tick: int
    now_s: float
    """The controller's wall clock at the end of the interval."""
    interval_s: float
    """Length of the interval that the windows cover, as measured."""
    epoch: str
    algorithm: str
    meaning: WeightMeaning
    backends: tuple[BackendObservation, ...]
    model_checksum: str
    """Of the models in use: a plan made with other models is another plan."""
    orders: Orders = field(default=NO_ORDERS, kw_only=True)
    """Of operators.  The default is what recordings of before this field say of them."""


# ---------------------------------------------------------------- what was decided


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is held of one backend, with the evidence a person would ask for."""

    cause: Cause
    rho_fg: Measured
    rho_bg: Measured
    peak_rps: Measured
    """r_i: requests per second the backend could serve with nobody beside it."""
    expected_t_x_ms: Measured
    """What T_x was expected to be at most."""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """What is wanted for one backend."""

    name: str
    verdict: Verdict
    share: float
    """Fraction of the service's requests, 0 to 1."""
    weight: int
    """The same as an integer weight in the balancer's own meaning."""


class Action(StrEnum):
    """What the plan does with the shares."""

    HOLD = "hold"
    """Nothing to do, or not enough is known to do it."""
    SHIFT = "shift"
    """Load moves away from (or, refined, partly back to) contended backends."""
    PROBE = "probe"
    """A drained backend gets some requests, or no longer, to see whether its neighbour is gone."""
    PREFER = "prefer"
    """Nobody contends: of idle backends a slower one is taken last, or no longer."""
    RELEASE = "release"
    """The neighbour is gone: back to the configured weights."""
    RESTORE = "restore"
    """The balancer lost the weights in force (reload, restart): write them again."""
    OVERLOAD = "overload"
    """More arrives than all backends together can serve: shares by capacity."""
    PANIC = "panic"
    """Most backends look contended: the configured weights, for none is left to take load."""
    YIELD = "yield"
    """Somebody else sets the weights; they are left alone."""
    FREEZE = "freeze"
    """An operator froze the weights; they stay as they are."""
    OVERRIDE = "override"
    """An operator gave a backend its weight for a time, or that time has just ended."""


@dataclass(frozen=True, slots=True)
class Plan(InRows[BackendPlan]):
    """The answer of ``step`` to one observation."""

    tick: int
    now_s: float
    action: Action
    reason: str
    backends: tuple[BackendPlan, ...]
    changes: tuple[tuple[str, int], ...] = field(default=())
    """(backend, weight) where the weight wanted is not the weight in force."""

    @property
    def weights(self) -> dict[str, int]:
        """Weight by backend name."""
        return {b.name: b.weight for b in self.backends}

    @property
    def causes(self) -> Mapping[int, Cause]:
        """What is held of the backends that are anything but well, by their rows."""
        rows = self.rows
        causes: Mapping[int, Cause] | None = getattr(rows, "causes", None)
        if causes is not None:
            return causes
        held = {row: backend.verdict.cause for row, backend in enumerate(rows)}
        return {row: cause for row, cause in held.items() if cause is not Cause.NONE}

    @property
    def suspected(self) -> tuple[BackendPlan, ...]:
        """The backends that are held to be anything but well."""
        return tuple(self.rows[row] for row in self.causes)


# ---------------------------------------------------------------- what came of it


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What an adapter did with a set of weights."""

    version: int
    """The plan's version that was asked for (its tick)."""
    at_s: float
    """Wall clock when the weights were read back."""
    wanted: tuple[tuple[str, int], ...]
    in_effect: tuple[tuple[str, int], ...]
    """Weights read back from the balancer after the write, of the backends asked for."""
    failures: tuple[tuple[str, str], ...] = ()
    """(backend, what the balancer said) where a weight was not taken."""

    @property
    def ok(self) -> bool:
        """True when every weight asked for was read back."""
        return not self.failures and dict(self.wanted) == dict(self.in_effect)
