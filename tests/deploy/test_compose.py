"""``docker-compose.yml`` and the Containerfiles, as far as they can be judged without images."""

from __future__ import annotations

import ipaddress
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dial.settings import load_settings
from dial_haproxy import create
from dial_haproxy.cfg.check import check_files

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONTAINERS = ROOT / "deploy" / "containers"
TENANTS = ("tenant-1", "tenant-2", "tenant-3")


def test_the_lab_has_its_parts() -> None:
    lab = {name for name, service in SERVICES.items() if "lab" in service["profiles"]}
    agents = {f"agent-{number}" for number in (1, 2, 3)}
    others = {"haproxy", "controller", "watchdog", "client", "prometheus", "grafana"}
    assert lab == {*TENANTS, *agents, *others}
    assert SERVICES["neighbour"]["profiles"] == ["neighbour"]
    assert SERVICES["neighbour"]["cpuset"] == SERVICES["tenant-1"]["cpuset"]
    assert {SERVICES[name]["cpuset"] for name in TENANTS[1:]} == {"1"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_reached_from_this_computer_alone(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_refers_to_is_there(name: str) -> None:
    service = SERVICES[name]
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        made = source.startswith("./lb-adapters/pinot/plugin/target/")
        assert made or source in COMPOSE["volumes"] or (ROOT / source).exists()
    for network in service.get("networks", []):
        assert network in COMPOSE["networks"]
    for other in service.get("depends_on", {}):
        assert other in SERVICES
    if "build" in service:
        assert (ROOT / service["build"]["dockerfile"]).exists()
    pid = service.get("pid", "")
    assert not pid or pid.removeprefix("service:") in SERVICES


def address(name: str) -> str:
    return str(SERVICES[name]["networks"]["lab"]["ipv4_address"])


def test_addresses_are_those_of_the_configurations() -> None:
    subnet = ipaddress.ip_network(COMPOSE["networks"]["lab"]["ipam"]["config"][0]["subnet"])
    haproxy = (ROOT / "deploy" / "compose" / "haproxy.cfg").read_text()
    for name in TENANTS:
        assert f"server {name} {address(name)}:8080 " in haproxy
        assert ipaddress.ip_address(address(name)) in subnet
    assert f"server dial {address('controller')}:5140" in haproxy
    scraped = (ROOT / "deploy" / "compose" / "prometheus.yml").read_text()
    assert f'"{address("controller")}:9180"' in scraped
    for number, name in enumerate(TENANTS, start=1):
        command = SERVICES[f"agent-{number}"]["command"]
        assert f"--controller http://{address('controller')}:9180" in command
        assert f"--backend {name} " in command
        assert SERVICES[f"agent-{number}"]["pid"] == f"service:{name}"


def test_haproxy_and_dial_take_their_configurations() -> None:
    path = ROOT / "deploy" / "compose" / "haproxy.cfg"
    if shutil.which("haproxy") is not None:
        subprocess.run(["haproxy", "-c", "-f", path], check=True, timeout=30)
    findings = check_files([path]) or ()
    assert [f.what for f in findings if "DIAL's log-format" in f.what]
    settings = load_settings(ROOT / "deploy" / "compose" / "dial.toml")
    create(settings.service, settings.adapter.options)
    assert settings.backends.keys() == set(TENANTS)
    assert f"tcp://{address('haproxy')}:9999" == settings.adapter.options["socket"]


@pytest.mark.parametrize("path", sorted(CONTAINERS.glob("*.Containerfile")), ids=lambda p: p.stem)
def test_an_image_is_small_runs_as_nobody_else_and_says_how_it_is(path: Path) -> None:
    text = path.read_text()
    *_, last = re.split(r"^FROM ", text, flags=re.MULTILINE)
    assert "-slim" in last.splitlines()[0]
    assert re.search(r"^USER dial$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", last, re.MULTILINE)
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources)
    # Copying into the last stage takes nothing of the build's but the environment.
    copied = re.findall(r"^COPY --from=build (\S+)", last, re.MULTILINE)
    assert copied in ([], ["/opt/dial"])
