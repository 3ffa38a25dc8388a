"""The application on a real socket, inside the test's own event loop."""

from __future__ import annotations

import asyncio
import signal
import socket

import httpx
import pytest
from fastapi import FastAPI

from dial.errors import SettingError
from dial.intake.samples import MAX_BODY_BYTES
from dial.service.server import serve
from dial.settings import ApiSettings

TOKEN = "correct-horse-battery-staple"
FREE = ApiSettings(port=0)


async def test_it_listens_on_the_port_it_names_and_stops_with_the_context(app: FastAPI) -> None:
    async with serve(app, FREE) as port, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/healthz")
        assert answer.status_code == 200
        assert "server" not in answer.headers
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_signal_handlers_stay_the_controllers(app: FastAPI) -> None:
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    async with serve(app, FREE):
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_port_in_use_is_an_error_that_names_the_setting(app: FastAPI) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=rf"api\.port = {port}.*in use"):
            async with serve(app, ApiSettings(port=port)):
                pass


async def test_an_address_of_another_machine_cannot_be_bound(app: FastAPI) -> None:
    with pytest.raises(SettingError, match=r"192\.0\.2\.1"):
        async with serve(app, ApiSettings(host="192.0.2.1", port=0)):
            pass


async def test_an_error_in_the_body_still_stops_the_server(app: FastAPI) -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve(app, FREE) as port:
            raise ZeroDivisionError
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_an_oversized_body_is_refused_before_it_is_all_sent(app: FastAPI) -> None:
    async with serve(app, FREE) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            "POST /v1/samples HTTP/1.1\r\nHost: dial\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: {100 * MAX_BODY_BYTES}\r\n\r\n"
        )
        writer.write(head.encode() + b" " * (MAX_BODY_BYTES + 1))
        status = await reader.readline()
        assert status.startswith(b"HTTP/1.1 413 ")
        rest = await reader.read()  # ends, because the server closes
        assert b'"too_large"' in rest
        writer.close()


async def test_a_client_that_leaves_midway_leaves_the_server_well(app: FastAPI) -> None:
    async with serve(app, FREE) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /v1/samples HTTP/1.1\r\nHost: dial\r\nAuthorization: Bearer {TOKEN}\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
