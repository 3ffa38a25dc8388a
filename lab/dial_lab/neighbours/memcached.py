"""A neighbour that serves: memcached under load, its answers as fast as they get out.

This file is its clients, on the balancer's side of the NIC: they start memcached, put one large
value there, and fetch it over several connections, each the next time when it has the last
byte.  What limits them is the class of the NIC that the answers leave through.

Standard library only, and runs as a file.  memcached ends with it, however it ends.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import threading
import time

_KEY = b"value"
_WAIT_S = 5.0


def connect(host: str, port: int, wait_s: float = _WAIT_S) -> socket.socket:
    """A connection, as soon as somebody listens.

    Raises
    ------
    OSError
        If nobody does in time.
    """
    give_up = time.monotonic() + wait_s
    while True:
        try:
            return socket.create_connection((host, port), timeout=wait_s)
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def store(connection: socket.socket, count: int) -> int:
    """Put a value of ``count`` bytes there; returns the bytes of the answer that gives it back.

    Raises
    ------
    ValueError
        With memcached's own words, if it refuses.
    """
    connection.sendall(b"set %b 0 0 %d\r\n" % (_KEY, count) + bytes(count) + b"\r\n")
    said = connection.recv(1024)
    if said != b"STORED\r\n":
        raise ValueError(f"memcached: {said.decode(errors='replace').strip()}")
    return len(b"VALUE %b 0 %d\r\n" % (_KEY, count)) + count + len(b"\r\nEND\r\n")


def fetch(connection: socket.socket, answer_bytes: int) -> None:
    """Ask for the value and take all of the answer.

    Raises
    ------
    ConnectionError
        If memcached is gone.
    """
    connection.sendall(b"get %b\r\n" % _KEY)
    buffer = bytearray(65_536)
    while answer_bytes > 0:
        got = connection.recv_into(buffer, min(len(buffer), answer_bytes))
        if not got:
            raise ConnectionError("memcached closed the connection")
        answer_bytes -= got


def main() -> None:
    """Start from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--value-bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("memcached", nargs="+", help="its command line, after --")
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *options.memcached]) as server:
        try:
            with connect(options.host, options.port) as connection:
                answer_bytes = store(connection, options.value_bytes)

            def work() -> None:
                with connect(options.host, options.port) as connection:
                    while time.monotonic() < end_s:
                        fetch(connection, answer_bytes)

            clients = [threading.Thread(target=work) for _ in range(options.connections)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
