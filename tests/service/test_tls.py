"""TLS and mutual TLS, by settings, with certificates made here."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from dial.agent.client import Client, Kind, parse_endpoint
from dial.cli.client import Reach, fetch_state
from dial.errors import DialError, SettingError
from dial.service.server import serve, tls_context
from dial.settings import ApiSettings


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority of our own, and a certificate of it for the server and for one client."""
    folder = tmp_path_factory.mktemp("tls")
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name, subject in (("ca", "/CN=test authority"), ("other", "/CN=another authority")):
        files = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
        openssl(*new, *files, "-subj", subject, "-days", "2")
    for name in ("server", "client"):
        files = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
        authority = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-days", "2")
        names = ("-addext", "subjectAltName=IP:127.0.0.1")
        openssl(*new, *files, *authority, *names, "-subj", f"/CN={name}")
    return folder


def settings(folder: Path, **changes: object) -> ApiSettings:
    files = {"tls_cert": folder / "server.pem", "tls_key": folder / "server.key"}
    return ApiSettings(port=0, **(files | changes))


def trusting(folder: Path, certificate: str | None = None) -> httpx.AsyncClient:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if certificate:
        context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
    return httpx.AsyncClient(verify=context, trust_env=False)


async def test_with_a_certificate_the_service_speaks_tls_alone(
    app: FastAPI, certificates: Path
) -> None:
    api = settings(certificates)
    async with serve(app, api) as port, trusting(certificates) as client:
        assert (await client.get(f"https://127.0.0.1:{port}/healthz")).status_code == 200
        with pytest.raises(httpx.HTTPError):
            await client.get(f"http://127.0.0.1:{port}/healthz")


async def test_mutual_tls_lets_in_who_has_a_certificate_of_the_authority(
    app: FastAPI, certificates: Path
) -> None:
    api = settings(certificates, tls_client_ca=certificates / "ca.pem")
    async with serve(app, api) as port:
        where = f"https://127.0.0.1:{port}/healthz"
        async with trusting(certificates, "client") as client:
            assert (await client.get(where)).status_code == 200
        for certificate in (None, "other"):
            async with trusting(certificates, certificate) as client:
                with pytest.raises(httpx.HTTPError):
                    await client.get(where)


async def test_an_agent_with_a_certificate_gets_through_and_one_without_does_not(
    app: FastAPI, certificates: Path
) -> None:
    api = settings(certificates, tls_client_ca=certificates / "ca.pem")
    trusted, own = str(certificates / "ca.pem"), certificates / "client"
    async with serve(app, api) as port:
        endpoint = parse_endpoint(f"https://127.0.0.1:{port}")
        with_one = Client(endpoint, "wrong", trusted, cert_file=f"{own}.pem", key_file=f"{own}.key")
        outcome = await asyncio.to_thread(with_one.post, b"{}")
        assert (outcome.kind, outcome.message[:3]) == (Kind.DENIED, "401")
        outcome = await asyncio.to_thread(Client(endpoint, "wrong", trusted).post, b"{}")
        assert outcome.kind is Kind.FAILED
        with_one.close()
    with pytest.raises(SettingError, match="--cert-file"):
        Client(endpoint, "any", trusted, cert_file=trusted, key_file=f"{own}.key")


async def test_a_reading_command_with_a_certificate_gets_through_and_one_without_is_told_why(
    app: FastAPI, certificates: Path
) -> None:
    api = settings(certificates, tls_client_ca=certificates / "ca.pem")
    trusted, own = certificates / "ca.pem", certificates / "client"
    key = {"cert_file": own.with_suffix(".pem"), "key_file": own.with_suffix(".key")}
    async with serve(app, api) as port:
        url = f"https://127.0.0.1:{port}"
        state, _ = await asyncio.to_thread(fetch_state, Reach(url, ca_file=trusted, **key))
        assert state.service == "web"
        with pytest.raises(DialError, match="give --ca-file"):
            await asyncio.to_thread(fetch_state, Reach(url, **key))
        with pytest.raises(DialError, match="no answer"):
            await asyncio.to_thread(fetch_state, Reach(url, ca_file=trusted))
        with pytest.raises(SettingError, match="--cert-file and --key-file: give both"):
            fetch_state(Reach(url, ca_file=trusted, cert_file=key["cert_file"]))


def test_files_that_cannot_be_used_are_errors_that_name_the_setting(
    certificates: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=r"api\.tls_cert.*want PEM"):
        tls_context(settings(certificates, tls_cert=certificates / "client.key"))
    with pytest.raises(SettingError, match=r"api\.tls_key.*No such file"):
        tls_context(settings(certificates, tls_key=tmp_path / "none"))
    with pytest.raises(SettingError, match=r"api\.tls_client_ca"):
        tls_context(settings(certificates, tls_client_ca=certificates / "ca.key"))
    open_key = tmp_path / "open.key"
    open_key.write_bytes((certificates / "server.key").read_bytes())
    open_key.chmod(0o644)
    with pytest.raises(SettingError, match="chmod 600"):
        tls_context(settings(certificates, tls_key=open_key))


def test_half_a_configuration_is_refused() -> None:
    with pytest.raises(ValidationError, match="give both or neither"):
        ApiSettings(tls_cert=Path("a"))
    with pytest.raises(ValidationError, match=r"needs api\.tls_cert"):
        ApiSettings(tls_client_ca=Path("a"))
