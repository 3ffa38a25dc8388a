"""The settings: defaults, overrides, and one clear error for each bad value."""

import os
from pathlib import Path

import pytest
from pydantic import BaseModel

from dial.errors import SettingError
from dial.settings import Settings, load_settings
from dial.types import Mode

BASE = 'service = "web"\n[adapter]\nname = "haproxy"\n'


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch):
    for name in [name for name in os.environ if name.startswith("DIAL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path):
    def from_text(text: str) -> Settings:
        path = tmp_path / "dial.toml"
        path.write_text(text, encoding="utf-8")
        return load_settings(path)

    return from_text


def tables(model: type[BaseModel] = Settings) -> set[type[BaseModel]]:
    """The settings class and every table in it."""
    found = {model}
    for field in model.model_fields.values():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= tables(kind)
    return found


def test_defaults_are_quick_and_harmless(load):
    settings = load(BASE)
    assert settings.mode is Mode.SHADOW  # writes nothing
    assert settings.interval_s == 1.0
    assert settings.percentile == 90.0
    assert (settings.detector.confidence, settings.detector.successive) == (0.95, 2)  # 2.5
    assert settings.api.host == "127.0.0.1"
    assert settings.api.token is None
    assert settings.record.path is None
    assert settings.model == "lab"
    assert settings.guards.engage_rho_bg < settings.guards.blind_rho_bg


def test_values_of_the_file_are_taken(load):
    settings = load(
        'mode = "enforce"\ninterval_s = 2\n' + BASE + "[adapter.options]\nsocket = '/run/x'\n"
        "[backends.s1]\npeak_rps = 150.5\n[guards]\nmax_step = 1.0\n"
    )
    assert settings.mode is Mode.ENFORCE
    assert settings.interval_s == 2.0
    assert settings.adapter.options == {"socket": "/run/x"}
    assert settings.backends["s1"].peak_rps == 150.5
    assert settings.guards.max_step == 1.0


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("percentile", "49.9", "greater than or equal to 50"),
        ("percentile", "100.0", "less than or equal to 99.9"),
        ("percentile", "nan", "99.9"),
        ("interval_s", "0.0", "greater than 0"),
        ("interval_s", "-1", "greater than 0"),
        ("interval_s", "inf", "finite"),
        ("interval_s", "'soon'", "valid number"),
        ("mode", "'yolo'", "'shadow' or 'enforce'"),
        ("log_format", "'xml'", "'console' or 'json'"),
        ("api.port", "65536", "less than or equal to 65535"),
        ("api.port", "-1", "greater than or equal to 0"),
        ("api.port", "1.5", "valid integer"),
        ("backends.s1.peak_rps", "0.0", "greater than 0"),
        ("backends.s1.peak_rps", "inf", "finite"),
        ("detector.confidence", "0.5", "greater than 0.5"),
        ("detector.confidence", "1.0", "less than 1"),
        ("detector.confidence", "nan", "less than 1"),
        ("detector.successive", "0", "greater than or equal to 1"),
        ("detector.learn_intervals", "2", "greater than or equal to 3"),
        ("detector.memory_intervals", "9", "greater than or equal to 10"),
        ("estimator.model_error", "-0.1", "greater than or equal to 0"),
        ("estimator.drift", "0.0", "greater than 0"),
        ("guards.min_requests", "0", "greater than or equal to 1"),
        ("guards.floor_share", "1.01", "less than or equal to 1"),
        ("guards.max_step", "nan", "number"),
        ("guards.hysteresis", "-0.1", "greater than or equal to 0"),
        ("guards.engage_rho_bg", "2.0", "less than or equal to 1"),
        ("guards.blind_rho_bg", "-1.0", "greater than or equal to 0"),
        ("guards.release_evidence", "0.0", "greater than 0"),
        ("guards.return_ticks", "-1", "greater than or equal to 0"),
        ("guards.expire_ticks", "0", "greater than or equal to 1"),
        ("guards.panic_fraction", "1.5", "less than or equal to 1"),
        ("record.max_mib", "0.0", "greater than 0"),
        ("record.max_mib", "inf", "finite"),
        ("record.keep", "0", "greater than or equal to 1"),
        ("lease.expires_s", "0.0", "greater than 0"),
        ("lease.resume_s", "-1.0", "greater than or equal to 0"),
        ("lease.resume_s", "inf", "finite"),
    ],
)
def test_a_bad_value_gives_one_error_with_setting_value_and_what_is_allowed(
    load, setting, value, allowed
):
    table, _, name = setting.rpartition(".")
    text = f"{BASE}[{table}]\n{name} = {value}\n" if table else f"{name} = {value}\n{BASE}"
    with pytest.raises(SettingError) as caught:
        load(text)
    message = str(caught.value)
    assert f"dial.toml: {setting} = {value}" in message or f"{setting} = " in message
    assert value.strip("'") in message
    assert allowed in message
    assert "\n" not in message


def test_all_that_is_wrong_is_told_at_once(load):
    with pytest.raises(SettingError, match=r"percentile = 0.*interval_s = 0"):
        load("percentile = 0\ninterval_s = 0\n" + BASE)


@pytest.mark.parametrize(
    ("text", "name"),
    [("", "service"), ("service = 'web'\n", "adapter"), ("service = 'web'\n[adapter]\n", "name")],
)
def test_what_is_missing_is_named(load, text, name):
    with pytest.raises(SettingError, match=rf"{name}: Field required"):
        load(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"intervall_s = 5\n{BASE}", "intervall_s"),
        (f"{BASE}[guards]\nmax_steps = 0.1\n", "guards.max_steps"),
        (f"{BASE}[gards]\nmax_step = 0.1\n", "gards"),
    ],
)
def test_a_misspelt_setting_is_refused_by_name(load, text, name):
    with pytest.raises(SettingError, match=rf"{name}: Extra inputs are not permitted"):
        load(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{BASE}[api]\ntoken = ['hunter2']\n",
        f"{BASE}[api]\ntokn = 'hunter2'\n",
        f"{BASE}[apii]\ntoken = 'hunter2'\n",
        f"{BASE}[[api]]\ntoken = 'hunter2'\n",
        f"{BASE}[backends]\ns1 = ['hunter2']\n",
        f"{BASE}[api]\ntoken = 'hunter2' oops\n",
    ],
)
def test_an_error_never_shows_a_token_even_under_a_misspelt_name(load, text):
    with pytest.raises(SettingError) as caught:
        load(text)
    assert "hunter2" not in str(caught.value)


def test_a_token_is_not_printed(load):
    settings = load(f"{BASE}[api]\ntoken = 'hunter2'\n")
    assert settings.api.token is not None
    assert settings.api.token.get_secret_value() == "hunter2"
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump()}"
    assert "hunter2" not in settings.model_dump_json()


def test_the_environment_overrides_the_file(load, monkeypatch):
    monkeypatch.setenv("DIAL_INTERVAL_S", "5")
    monkeypatch.setenv("DIAL_API__PORT", "9200")
    settings = load("interval_s = 2\n" + BASE + "[api]\nhost = '::1'\nport = 1\n")
    assert settings.interval_s == 5.0
    assert (settings.api.host, settings.api.port) == ("::1", 9200)  # the rest of the table stays


def test_a_bad_override_is_an_error_of_the_setting(load, monkeypatch):
    monkeypatch.setenv("DIAL_API__PORT", "many")
    with pytest.raises(SettingError, match=r"api\.port = 'many': .*valid integer"):
        load(BASE)


def test_an_override_of_a_table_that_is_no_json_is_an_error_of_the_setting(load, monkeypatch):
    monkeypatch.setenv("DIAL_BACKENDS", "hunter2")
    with pytest.raises(SettingError, match=r"environment: .*backends.*must be JSON") as caught:
        load(BASE)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(SettingError, match=r"/nowhere/dial\.toml: No such file"):
        load_settings(Path("/nowhere/dial.toml"))


@pytest.mark.parametrize("content", [b"service = ", b"\xff\xfe", b"\x80\x04\x95"])
def test_a_file_that_is_no_toml_is_named(tmp_path, content):
    path = tmp_path / "dial.toml"
    path.write_bytes(content)
    with pytest.raises(SettingError, match=r"dial\.toml: not TOML"):
        load_settings(path)


def test_settings_cannot_be_changed_once_made(load):
    settings = load(BASE)
    with pytest.raises(ValueError, match="frozen"):
        settings.interval_s = 1.0


def test_every_setting_is_described():
    scalars = {
        f"{table.__name__}.{name}": field
        for table in tables()
        for name, field in table.model_fields.items()
    }
    assert "GuardSettings.floor_share" in scalars  # the walk finds nested tables
    assert "BackendSettings.peak_rps" in scalars
    for name, field in scalars.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            assert kind.__doc__, f"{name}: its table has no docstring"
        elif kind != dict[str, next(t for t in tables() if t.__name__ == "BackendSettings")]:
            assert field.description, f"{name} has no description"


def test_a_lease_lasts_three_intervals_and_at_least_ten_seconds(load):
    assert load("interval_s = 1\n" + BASE).lease_expires_s == 10.0
    assert load("interval_s = 20\n" + BASE).lease_expires_s == 60.0
    assert load("interval_s = 1\n" + BASE + "[lease]\nexpires_s = 2\n").lease_expires_s == 2.0


def test_a_lease_that_a_single_late_tick_lets_expire_is_refused(load):
    with pytest.raises(
        SettingError,
        match=r"lease\.expires_s = 3\.9 must be at least twice interval_s = 2\.0",
    ):
        load("interval_s = 2\n" + BASE + "[lease]\nexpires_s = 3.9\n")
