"""``dial check`` on a bootstrap, which Envoy itself finds right, and on what is wrong in it."""

from __future__ import annotations

import json

import pytest
import yaml

from dial.adapter import Severity
from dial.adapter import check_files as check_any
from dial_envoy import check_files, config
from dial_envoy.example import Example, fixed

SERVERS = {"s1": ("10.0.0.11", 8080), "s2": ("10.0.0.12", 8080)}

RIGHT = {
    "gRPC": Example(
        8080,
        9901,
        config.eds_config("0123456789abcdef"),
        access_log=config.grpc_access_log("0123456789abcdef"),
        clusters=config.xds_cluster("127.0.0.1", 18000),
    ),
    "files": Example(
        8080,
        9901,
        config.eds_file_config("/etc/eds.json"),
        lb_policy="LEAST_REQUEST",
        access_log=config.file_access_log("/var/log/envoy.json"),
    ),
}


def found(tmp_path, text: str, service: str = ""):
    path = tmp_path / "envoy.yaml"
    path.write_text(text)
    findings = check_files([path], service)
    assert findings is not None
    return findings


def wrong(tmp_path, text: str, service: str = "") -> list[str]:
    bad = (Severity.ERROR, Severity.WARNING)
    return [f.what for f in found(tmp_path, text, service) if f.severity in bad]


@pytest.mark.parametrize("how", RIGHT)
def test_what_the_guide_shows_is_right_to_both(tmp_path, envoy_validates, how):
    text = str(RIGHT[how])
    assert wrong(tmp_path, text) == []
    if how == "files":
        text = text.replace("/etc/eds.json", str(tmp_path / "eds.json"))
        text = text.replace('"/etc"', f'"{tmp_path}"')
        (tmp_path / "eds.json").write_text('{"resources": []}')
    (tmp_path / "envoy.yaml").write_text(text)
    said = envoy_validates(tmp_path / "envoy.yaml")
    assert said.returncode == 0, said.stderr


def test_a_bootstrap_as_users_have_it_is_told_all_that_is_missing(tmp_path):
    text = str(Example(8080, 9901, fixed("app", SERVERS)))
    text = text[text.index("static_resources") :]
    findings = found(tmp_path, text)
    errors = [f for f in findings if f.severity is Severity.ERROR]
    assert [f.what.partition(":")[0] for f in errors] == [
        "there is no admin interface",
        "cluster 'app' has type STATIC",
        "no access log that DIAL can read",
    ]
    assert all(f.fix and f.at for f in errors)
    # The fixes, put in, are right: what check says and what it accepts cannot drift apart.
    assert config.eds_config() in errors[1].fix
    assert config.grpc_access_log() in errors[2].fix
    (settings,) = [f for f in findings if f.what == "DIAL's configuration that goes with it"]
    assert '"s1" = { address = "10.0.0.11:8080", weight = 100 }' in settings.settings


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "lb_policy: ROUND_ROBIN",
            "lb_policy: RANDOM",
            "allowed are ROUND_ROBIN and LEAST_REQUEST",
        ),
        ("cluster_name: dial", "cluster_name: dail", "no static cluster 'dail'"),
        ("connection_keepalive", "x", "has no connection_keepalive"),
        ("explicit_http_config", "x", "speaks no HTTP/2"),
        ("address: 127.0.0.1, port_value: 9901", "address: 0.0.0.0, port_value: 9901", "0.0.0.0"),
        ("id: edge-1, ", "", "node has no id"),
        ("buffer_flush_interval: 0.2s", "buffer_flush_interval: 5s", "wait up to 5s"),
        ("HttpGrpcAccessLogConfig", "OpenTelemetryAccessLogConfig", "no access log"),
        (
            "- name: envoy.access_loggers.http_grpc",
            "- filter: {not_health_check_filter: {}}\n            name: http_grpc",
            "has a filter",
        ),
        (
            "lb_policy: ROUND_ROBIN",
            "common_lb_config: {locality_weighted_lb_config: {}}",
            "locality_weighted_lb_config",
        ),
    ],
)
def test_one_thing_wrong_is_named(tmp_path, old, new, said):
    text = str(RIGHT["gRPC"])
    assert old in text
    assert any(said in what for what in wrong(tmp_path, text.replace(old, new)))


def test_a_json_log_that_lacks_a_field_is_named(tmp_path):
    text = str(RIGHT["files"]).replace("last_us:", "end:")
    assert wrong(tmp_path, text) == [
        "fields of this JSON log are missing or otherwise than DIAL reads them: last_us"
    ]


def test_json_is_read_too_and_lines_are_named(tmp_path):
    text = str(RIGHT["gRPC"])
    path = tmp_path / "envoy.json"
    path.write_text(json.dumps(yaml.safe_load(text)))
    assert all(f.severity in (Severity.OK, Severity.NOTE) for f in check_files([path]))
    (cluster, *_) = [f for f in found(tmp_path, text) if "ROUND_ROBIN" in f.what]
    line = int(cluster.at.rpartition(":")[2])
    assert text.splitlines()[line - 1].strip() == "- name: app"


@pytest.mark.parametrize(
    "text", ["global\n  maxconn 3\n", "a: [", "just: yaml\n", "\x00", "- 1\n", "&a [*a]"]
)
def test_other_files_are_not_envoys(tmp_path, text):
    path = tmp_path / "file"
    path.write_text(text)
    assert check_files([path]) is None


def test_dial_check_finds_the_adapter_by_the_file(tmp_path):
    path = tmp_path / "envoy.yaml"
    path.write_text(str(RIGHT["gRPC"]))
    assert any("cluster 'app' uses ROUND_ROBIN" in f.what for f in check_any([path]))


def test_of_several_clusters_one_is_asked_for_by_name(tmp_path):
    more = config.xds_cluster("127.0.0.1", 18000) + "- name: shop\n  type: EDS\n"
    text = str(
        Example(
            8080,
            9901,
            config.eds_config(),
            access_log=config.grpc_access_log(),
            clusters=more,
        )
    )
    notes = [f.what for f in found(tmp_path, text) if f.severity is Severity.NOTE]
    assert any("2 clusters could be DIAL's: app, shop" in what for what in notes)
    assert wrong(tmp_path, text, "app") == []
    assert any("no static cluster 'cart'" in what for what in wrong(tmp_path, text, "cart"))
