"""Somebody's site: an HAProxy as Debian sets it up, its servers, and clients that do not stop.

Run as ``python somebody.py DIRECTORY``: serves on the addresses of :data:`SERVERS` and asks
HAProxy on port 80.  While ``DIRECTORY/slow`` exists, the server it names is slow.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

SERVERS = {
    "web1": ("10.0.0.11", 8080),
    "web2": ("10.0.0.12", 8080),
    "web3": ("10.0.0.13", 8080),
    "files1": ("10.0.0.21", 8080),
    "files2": ("10.0.0.22", 8080),
}
QUIET_S = 0.02
SLOW_S = 0.25
REQUESTS_PER_S = 100.0

HAPROXY_CFG = """\
global
	log /dev/log	local0
	log /dev/log	local1 notice
	chroot /var/lib/haproxy
	user haproxy
	group haproxy
	daemon

defaults
	log	global
	mode	http
	option	dontlognull
        timeout connect 5000
        timeout client  50000
        timeout server  50000

frontend public
	bind *:80
	acl is_file path_beg /files/
	use_backend files if is_file
	default_backend shop

backend shop
	balance roundrobin
	option httpchk GET /health
	server web1 10.0.0.11:8080 check
	server web2 10.0.0.12:8080 check
	server web3 10.0.0.13:8080 check

backend files
	balance uri
	server files1 10.0.0.21:8080
	server files2 10.0.0.22:8080
"""
"""No runtime socket, no log format; the shop is one of two backends."""


async def serve(name: str, directory: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(SLOW_S if slow(name, directory) else QUIET_S)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            await writer.drain()
        writer.close()

    host, port = SERVERS[name]
    await (await asyncio.start_server(answer, host, port)).serve_forever()


def slow(name: str, directory: Path) -> bool:
    try:
        return (directory / "slow").read_text() == name
    except OSError:
        return False


async def ask(path: str) -> None:
    with suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", 80)
        with suppress(OSError):
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            await reader.read()
        writer.close()


async def main(directory: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        for name in SERVERS:
            tasks.create_task(serve(name, directory))
        number = 0
        while True:
            number += 1
            tasks.create_task(ask("/files/1" if number % 10 == 0 else "/"))
            await asyncio.sleep(1.0 / REQUESTS_PER_S)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
