"""Apache as the tenant's application, and the client that reads its answers."""

from __future__ import annotations

import asyncio
import gzip
import shutil
from pathlib import Path

import pytest

from dial_lab import apache
from dial_lab.addresses import Address, free_ports, wait_for_port
from dial_lab.apache import ApacheOnCpu, config, write_pages
from dial_lab.client import Pool
from dial_lab.processes import Children


def test_every_page_that_can_be_asked_for_is_there(tmp_path: Path) -> None:
    write_pages(tmp_path)
    for amount in (1, 48, 100_000):
        page = tmp_path / ApacheOnCpu.cost.target(amount).lstrip("/")
        assert page.stat().st_size == 1024 * int(page.stem)
    assert ApacheOnCpu.cost.target(1) == "/pages/8.html"
    assert ApacheOnCpu.cost.target(49) == "/pages/56.html"
    assert ApacheOnCpu.cost.target(100_000) == "/pages/480.html"


def test_pages_compress_as_text_does(tmp_path: Path) -> None:
    write_pages(tmp_path)
    page = (tmp_path / "pages" / "48.html").read_bytes()
    assert 2.0 < len(page) / len(gzip.compress(page)) < 5.0


def test_a_real_apache_answers_the_client(tmp_path: Path) -> None:
    if not Path(apache.PROGRAM).exists():
        pytest.skip("apache2 is not installed")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not installed")
    write_pages(tmp_path)
    (port,) = free_ports(1)
    address = Address("127.0.0.1", port)
    path = tmp_path / "apache.conf"
    path.write_text(config(tmp_path, address, tmp_path), encoding="utf-8")
    with Children(tmp_path) as children:
        children.start("apache", [apache.PROGRAM, "-f", str(path), "-DFOREGROUND"])
        wait_for_port(address, children)
        answers = asyncio.run(ask(address, ["/pages/8.html", "/pages/480.html", "/none.html"]))
    assert [status for status, _ in answers] == [200, 200, 404]
    assert all(b"content-encoding: gzip" in head for status, head in answers if status == 200)


async def ask(address: Address, targets: list[str]) -> list[tuple[int, bytes]]:
    """One after the other, on kept connections."""
    pool = Pool(*address)
    answers = []
    async with asyncio.timeout(20.0):
        for target in targets:
            ended: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
            pool.get(target, lambda status, head, end=ended: end.set_result((status, head)))
            answers.append(await ended)
    await pool.aclose()
    return answers


@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_chunked_answers_are_read_however_they_come(piece: int) -> None:
    text = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;x=y\r\nab\r\nc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            for at in range(0, len(text), piece):
                writer.write(text[at : at + piece])
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        answers = await ask(address, ["/", "/"])
    assert [status for status, _ in answers] == [200, 200]
