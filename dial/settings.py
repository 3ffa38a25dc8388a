"""Every setting of the controller, in one table that is checked when it is read.

A configuration is one TOML file; any value can be overridden from the environment, as
``DIAL_INTERVAL_S=5`` or, nested, ``DIAL_API__PORT=9200``.  Unknown names in the file are
refused: a misspelt setting that is silently ignored is worse than none.

Defaults say where they come from.  Shares are fractions of the service's requests.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from dial.errors import SettingError
from dial.types import Mode

Fraction = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AdapterSettings(_Table):
    """Which load balancer, and how to reach it."""

    name: str = Field(description="Entry-point name of an installed adapter, such as haproxy.")
    options: dict[str, object] = Field(
        default_factory=dict, description="The adapter's own options; it checks them itself."
    )


class BackendSettings(_Table):
    """What the tenant knows of one backend."""

    peak_rps: float | None = Field(
        default=None,
        gt=0.0,
        allow_inf_nan=False,
        description="Requests per second it can serve with nobody beside it; without it the "
        "utilisation law on the agent's samples is used.",
    )


class ApiSettings(_Table):
    """Where the controller listens for agents and readers."""

    host: str = Field(default="127.0.0.1", description="Address to bind; loopback by default.")
    port: int = Field(default=9180, ge=0, le=65_535, description="Port; 0 picks a free one.")
    token: SecretStr | None = Field(
        default=None,
        description="Token of agents, and of those who follow the weights; prefer token_file.",
    )
    token_file: Path | None = Field(
        default=None, description="File that holds it, readable by the controller only."
    )
    read_token: SecretStr | None = Field(
        default=None,
        description="Token that reading needs; without one whoever can connect may look.",
    )
    read_token_file: Path | None = Field(
        default=None, description="File that holds it, readable by the controller only."
    )
    operator_token: SecretStr | None = Field(
        default=None,
        description="Token that orders need (freeze, weights by hand), and that may read; "
        "without one nobody can give any.",
    )
    operator_token_file: Path | None = Field(
        default=None, description="File that holds it, readable by the controller only."
    )
    tls_cert: Path | None = Field(
        default=None, description="Certificate (chain) in PEM: the service then speaks TLS alone."
    )
    tls_key: Path | None = Field(
        default=None, description="Its private key in PEM, readable by the controller only."
    )
    tls_client_ca: Path | None = Field(
        default=None,
        description="Certificates in PEM, one of which must have signed that of each client "
        "(mutual TLS), beside the token.",
    )
    rate_per_s: float = Field(
        default=200.0,
        ge=0.0,
        le=1e6,
        allow_inf_nan=False,
        description="Requests per second that one address may make, five seconds' worth at once; "
        "beyond it the answer is 429. 0 is no limit: for many agents behind one address.",
    )
    max_streams: int = Field(
        default=16,
        ge=0,
        le=1_000,
        description="Live streams (dashboards) at a time; beyond it the answer is 429.",
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> ApiSettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("api.tls_cert and api.tls_key: give both or neither")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("api.tls_client_ca: needs api.tls_cert and api.tls_key")
        return self


class DetectorSettings(_Table):
    """When a backend counts as slower than in its quiet past."""

    confidence: float = Field(
        default=0.95, gt=0.5, lt=1.0, description="Two-sided confidence of the band (2.3.1)."
    )
    slack: float = Field(
        default=1.0,
        ge=0.0,
        le=10.0,
        allow_inf_nan=False,
        description="cusum: standard deviations above the mean that are no evidence.",
    )
    threshold: float = Field(
        default=6.0,
        gt=0.0,
        le=100.0,
        allow_inf_nan=False,
        description="cusum: evidence that signals, in standard deviations. With a slack of 1, 6 "
        "is one false signal in some 800,000 intervals of a backend, 5 one in 110,000. Half of it "
        "is enough for a backend that is far slower than its siblings.",
    )
    successive: int = Field(
        default=2, ge=1, le=100, description="band: intervals in a row above it that signal (2.5)."
    )
    learn_intervals: int = Field(
        default=6, ge=3, le=10_000, description="Quiet intervals before anything is said."
    )
    memory_intervals: int = Field(
        default=300,
        ge=10,
        le=1_000_000,
        description="Quiet intervals after which two thirds of the past are forgotten.",
    )


class EstimatorSettings(_Table):
    """Eq. 1 and what is made of its answer."""

    model_error: float = Field(
        default=0.2,
        ge=0.0,
        le=2.0,
        allow_inf_nan=False,
        description="Relative error of T_x under Eq. 1, beside sampling. The paper's is 0.06 for "
        "a trained curve; M/M/1's through the quiet past is off by 0.2 to 0.3 in the lab.",
    )
    drift: float = Field(
        default=0.03,
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="Standard deviation of the change of rho_bg in one tick while the neighbour "
        "stays: how fast the estimate follows.",
    )


class StrategySettings(_Table):
    """Which rule is used where there are two: ours, and the paper's for comparison."""

    detect: Literal["cusum", "band"] = Field(
        default="cusum",
        description="cusum sums up evidence over intervals, with the backend's own load taken out; "
        "band asks for successive intervals above a band, as the paper does (2.3.1).",
    )
    estimate: Literal["tracked", "interval"] = Field(
        default="tracked",
        description="tracked follows rho_bg by a filter; interval takes each interval's own "
        "estimate, as the paper does (2.5, step 3).",
    )
    split: Literal["exact", "lemma1", "proportional"] = Field(
        default="exact",
        description="exact minimises Eq. 2 with no share below its floor; lemma1 is the paper's "
        "closed form, with negative shares cut off; proportional weighs backends by what is left "
        "of them, for comparison.",
    )
    release: Literal["estimate", "t_x"] = Field(
        default="estimate",
        description="estimate moves load back when rho_bg has gone; t_x when T_x is back in its "
        "band, as the paper does (2.5), which hands load back to a neighbour that is still there.",
    )


class GuardSettings(_Table):
    """What keeps a plan from doing harm."""

    min_requests: int = Field(
        default=20,
        ge=1,
        description="Requests of one backend in one interval below which its T_x is not used: a "
        "P90 of 20 has two requests above it.",
    )
    floor_share: Fraction | None = Field(
        default=None,
        description="Least share a backend keeps so that it still gives samples, as a fraction of "
        "the even share. When not given 0.1, or as little as makes it a third of the requests that "
        "may be slower than T_x: of three backends 0.1 with P90, 0.05 with P95, 0.01 with P99.",
    )
    max_step: Fraction = Field(
        default=0.5,
        description="Largest change of one backend's share in one tick, as a fraction of the even "
        "share; a larger plan is reached in several ticks.",
    )
    hysteresis: Fraction = Field(
        default=0.1,
        description="Change of share below which nothing is written, as a fraction of the even "
        "share.",
    )
    engage_rho_bg: Fraction = Field(
        default=0.2, description="Estimated rho_bg at which load begins to move."
    )
    blind_rho_bg: Fraction = Field(
        default=0.4,
        description="What a neighbour would have to take for a backend to be as much slower than "
        "its siblings as it is, from which half the evidence is enough, and load begins to move "
        "before the cause is known.",
    )
    release_evidence: float = Field(
        default=5.0,
        gt=0.0,
        le=100.0,
        allow_inf_nan=False,
        description="Evidence that the neighbour has gone at which load moves back: the log of a "
        "likelihood ratio, at least of three intervals; 5 is one false release in 150 ticks of a "
        "neighbour that stays, or fewer.",
    )
    return_ticks: int = Field(
        default=60,
        ge=0,
        le=1_000_000,
        description="Ticks after a release within which a neighbour that is found again counts as "
        "the same. Then load stays away for 20 ticks at least, for 40 the next time, and so on up "
        "to 10 times this.",
    )
    expire_ticks: int = Field(
        default=180,
        ge=1,
        le=1_000_000,
        description="Ticks without a single reading of a contended backend after which its "
        "neighbour is forgotten: weights that nothing speaks for must not stay for ever.",
    )
    slower_ratio: Annotated[float, Field(ge=1.25, le=100.0, allow_inf_nan=False)] | None = Field(
        default=1.5,
        description="How many times as slow as its siblings a backend is, with nobody to blame, "
        "that is taken last of idle ones, where requests go by delay. Nobody is when not given.",
    )
    panic_fraction: Fraction = Field(
        default=0.7,
        description="Contended backends, as a fraction of those in use, above which the "
        "configured weights stand: so many are no neighbours, or none is left to take the load.",
    )


class RecordSettings(_Table):
    """Where every tick is written down, as JSON lines that `dial replay` can run again."""

    path: Path | None = Field(default=None, description="File to append to; none when not given.")
    max_mib: float = Field(
        default=64.0,
        gt=0.0,
        allow_inf_nan=False,
        description="Size at which the file is turned.",
    )
    keep: int = Field(default=4, ge=1, le=1_000, description="Turned files that are kept.")


class TracingSettings(_Table):
    """Where traces of decisions go (:mod:`dial.tracing`)."""

    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://\S+$",
        description="Address that takes OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; "
        "needs the extra `dial-lb[tracing]`. No traces are made when not given.",
    )


class LeaseSettings(_Table):
    """What outlives a controller that is killed: which weights are its own, and what it learnt."""

    path: Path | None = Field(
        default=None,
        description="File that names the weights in force that are DIAL's own, in a directory that "
        "only DIAL's user can write; `dial watchdog` and the next controller read it. None when "
        "not given: then weights of a controller that was killed stay in force.",
    )
    expires_s: PositiveSeconds | None = Field(
        default=None,
        description="Seconds without a renewal after which the watchdog puts the configured "
        "weights back, at least two intervals; three intervals and at least 10 when not given.",
    )
    resume_s: float = Field(
        default=900.0,
        ge=0.0,
        le=604_800.0,
        allow_inf_nan=False,
        description="Age up to which a controller that starts goes on from what the last one had "
        "learnt, instead of learning anew.",
    )


class FleetSettings(_Table):
    """Where the fleet's NATS servers are (:mod:`dial.fleet`)."""

    servers: tuple[str, ...] = Field(
        default=(),
        description="NATS servers, such as nats://10.0.0.5:4222 or tls://...: with one, the "
        "controller is one of a group that reads and writes by way of `dial reader`; needs the "
        "extra `dial-lb[fleet]`.",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Name of this reader or controller, of its own in the fleet; the host's when "
        "not given.",
    )
    token: SecretStr | None = Field(
        default=None, description="Token that the servers ask for; prefer token_file."
    )
    token_file: Path | None = Field(
        default=None, description="File that holds it, readable by its owner only."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates in PEM to trust for tls; the system's by default."
    )
    cert_file: Path | None = Field(
        default=None, description="Own certificate in PEM, where the servers ask for one."
    )
    key_file: Path | None = Field(default=None, description="Its private key in PEM.")
    leader_ttl_s: float = Field(
        default=2.0,
        ge=0.5,
        le=60.0,
        allow_inf_nan=False,
        description="Seconds without a renewal after which another controller may lead. The "
        "first controller that comes decides for all.",
    )
    replicas: Literal[1, 3, 5] = Field(
        default=1, description="NATS servers that keep plan and state; 3 where there are three."
    )

    @model_validator(mode="after")
    def _certificate_is_whole(self) -> FleetSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("fleet.cert_file and fleet.key_file: give both or neither")
        return self


class Settings(BaseSettings):
    """All settings of one controller, which looks after one service."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="DIAL_", env_nested_delimiter="__"
    )

    service: str = Field(min_length=1, description="The pool's name at the load balancer.")
    mode: Literal[Mode.SHADOW, Mode.ENFORCE] = Field(
        default=Mode.SHADOW,
        description="shadow computes and shows; enforce writes weights. An operator freezes a "
        "controller that enforces by an order, not by a setting.",
    )
    percentile: float = Field(
        default=90.0, ge=50.0, le=99.9, description="The x of T_x, in percent."
    )
    interval_s: PositiveSeconds = Field(
        default=1.0,
        description="Length of a tick; the paper's is 10 s (4.3.1). A neighbour is found in two.",
    )
    adapter: AdapterSettings
    backends: dict[str, BackendSettings] = Field(default_factory=dict)
    model: str = Field(
        default="lab",
        min_length=1,
        description="A shipped model (lab: trained; starter: hand-written rules) or a file's path.",
    )
    api: ApiSettings = ApiSettings()
    detector: DetectorSettings = DetectorSettings()
    estimator: EstimatorSettings = EstimatorSettings()
    strategies: StrategySettings = StrategySettings()
    guards: GuardSettings = GuardSettings()
    record: RecordSettings = RecordSettings()
    lease: LeaseSettings = LeaseSettings()
    tracing: TracingSettings = TracingSettings()
    fleet: FleetSettings = FleetSettings()
    log_format: Literal["console", "json"] = Field(
        default="console", description="How the controller's own log is written."
    )

    @property
    def lease_expires_s(self) -> float:
        """How long weights may stand without a renewal.

        By default three ticks, of which two may fail, and no less than what it takes a
        supervisor to start the controller again.
        """
        return self.lease.expires_s or max(10.0, 3.0 * self.interval_s)

    @model_validator(mode="after")
    def _lease_outlasts_a_late_tick(self) -> Settings:
        if self.lease_expires_s < 2.0 * self.interval_s:
            raise ValueError(
                f"lease.expires_s = {self.lease_expires_s} must be at least twice "
                f"interval_s = {self.interval_s}, or a single late tick would let it expire"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the base class's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment before file: an operator's override must win."""
        return env_settings, init_settings


def load_settings(path: Path) -> Settings:
    """Read and check a configuration file.

    Raises
    ------
    SettingError
        If the file cannot be read, is no TOML, or holds a value that is not allowed; the
        message names the setting, the value and what is allowed.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # also an integer of more digits than Python reads
        raise SettingError(f"{path}: not TOML: {error}") from error
    except RecursionError as error:
        raise SettingError(f"{path}: nested too deeply to be a configuration") from error
    # BaseSettings has arguments of its own: _cli_parse_args would read the command line.
    for name in table:
        if name.startswith("_"):
            raise SettingError(f"{path}: {_shown_name(name)}: no setting begins with _")
    try:
        return Settings(**table)
    except ValidationError as error:
        raise SettingError(f"{path}: {describe(error)}") from error
    except SettingsError as error:
        raise SettingError(f"environment: {error}: a whole table must be JSON") from error


def describe(error: ValidationError) -> str:
    """One line for all that is wrong: setting, value (never a secret's), what is allowed.

    The value of an unknown name is not shown: it may be a token under a misspelt one.  Nor
    is that of a whole table, which may hold a token and is too long to read.
    """
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        name = _shown_name(".".join(str(part) for part in problem["loc"]))
        value = problem["input"]
        shown = (
            isinstance(value, str | int | float)
            and "token" not in name
            and problem["type"] != "extra_forbidden"
        )
        given = f"{name} = {value!r}" if shown else name
        # Of an enumeration's members, what one writes.
        message = re.sub(r"<\w+\.\w+: ('[^']*')>", r"\1", problem["msg"])
        lines.append(f"{given}: {message}" if given else message)
    return "; ".join(lines)


def _shown_name(name: str) -> str:
    """A name from a file, which may hold line breaks, on one line."""
    return name if name.isprintable() else repr(name)
