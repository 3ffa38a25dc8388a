"""The client against a real server on loopback, and the policy that follows its answers."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Thread
from time import sleep

import pytest

from dial.agent.client import Client, Kind, Outcome, parse_endpoint
from dial.agent.outbox import Outbox
from dial.agent.push import LONGEST_WAIT_S, Pusher, wait_s
from dial.agent.wire import encode
from dial.errors import SettingError
from dial.types import METRIC_NAMES, AgentSample

TOKEN = "s3cret-token"


class Controller(ThreadingHTTPServer):
    """Answers what it is told (by default 202) and remembers what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []
        self.bodies: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[socket.socket, object]:
        self.connections += 1
        return super().get_request()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def times(self) -> list[float]:
        return [sample["at_s"] for body in self.bodies for sample in body["samples"]]  # type: ignore[attr-defined]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Controller

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(json.loads(body))
        self.server.headers.append(dict(self.headers) | {"path": self.path})
        status, text = self.server.answers.pop(0) if self.server.answers else (202, "{}")
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(text.encode())
        if "close quietly" in text:  # as a server does that tires of an idle connection
            self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    made: list[Client] = []
    yield made
    for client in made:
        client.close()


def sample(at_s: float) -> AgentSample:
    return AgentSample(at_s=at_s, interval_s=1.0, **dict.fromkeys(METRIC_NAMES, 0.5))


def pusher_to(url: str, clients: list[Client], outbox: Outbox, timeout_s: float = 5.0) -> Pusher:
    client = Client(parse_endpoint(url), TOKEN, timeout_s=timeout_s)
    clients.append(client)
    return Pusher(outbox, client.post, partial(encode, "s1", "host:1"), Random(1))


def filled(count: int, capacity: int = 120) -> Outbox:
    outbox = Outbox(capacity)
    for number in range(count):
        outbox.put(sample(float(number)))
    return outbox


def test_samples_arrive_in_order_over_one_connection(
    controller: Controller, clients: list[Client]
) -> None:
    pusher = pusher_to(controller.url + "/prefix/", clients, filled(25))
    assert pusher.step() == 0.0
    assert controller.times() == [float(number) for number in range(25)]
    assert pusher.delivered == 25
    assert len(controller.bodies) == 3  # 10 + 10 + 5
    assert controller.connections == 1
    assert controller.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    assert controller.headers[0]["path"] == "/prefix/v1/samples"
    first = controller.bodies[0]
    assert (first["version"], first["backend"], first["agent"]) == (1, "s1", "host:1")


def test_refused_samples_are_dropped_and_each_message_logged_once(
    controller: Controller, clients: list[Client], caplog: pytest.LogCaptureFixture
) -> None:
    stale = json.dumps({"error": {"code": "stale", "message": "sample is\n3600 s old"}})
    controller.answers = [(400, stale), (422, "not ours\nsecond line"), (400, stale)]
    outbox = filled(25)
    with caplog.at_level(logging.INFO):
        pusher = pusher_to(controller.url, clients, outbox)
        assert pusher.step() == 0.0
    assert (pusher.refused, pusher.delivered, len(outbox)) == (25, 0, 0)
    assert [record.message for record in caplog.records] == [
        "controller refused samples: 400 sample is 3600 s old",
        "controller refused samples: 422 not ours",
    ]
    outbox.put(sample(99.0))
    assert pusher.step() == 0.0
    assert controller.times()[-1] == 99.0


@pytest.mark.parametrize("status", [401, 403, 302])
def test_denied_or_redirected_is_tried_slowly_and_never_followed(
    controller: Controller, clients: list[Client], status: int
) -> None:
    controller.answers = [(status, "no")]
    pusher = pusher_to(controller.url, clients, filled(1))
    assert LONGEST_WAIT_S / 2 <= pusher.step() <= LONGEST_WAIT_S
    assert pusher.refused == 1
    assert len(controller.bodies) == 1


@pytest.mark.parametrize("status", [503, 429, 408])
def test_a_controller_that_recovers_gets_all_that_was_kept(
    controller: Controller,
    clients: list[Client],
    caplog: pytest.LogCaptureFixture,
    status: int,
) -> None:
    controller.answers = [(status, "warming up"), (status, "warming up")]
    outbox = filled(2)
    with caplog.at_level(logging.INFO):
        pusher = pusher_to(controller.url, clients, outbox)
        assert 0.5 <= pusher.step() < 1.0
        outbox.put(sample(2.0))
        assert 1.0 <= pusher.step() < 2.0
        assert len(outbox) == 3
        assert pusher.step() == 0.0
    assert controller.times()[-3:] == [0.0, 1.0, 2.0]
    assert len(caplog.records) == 2  # one when it went, one when it came back


def test_connection_refused_keeps_the_samples(clients: list[Client]) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can be there
        taken.bind(("127.0.0.1", 0))
        outbox = filled(3)
        pusher = pusher_to(f"http://127.0.0.1:{taken.getsockname()[1]}", clients, outbox)
        assert pusher.step() > 0.0
    assert len(outbox) == 3


def test_a_hanging_controller_times_out_and_the_samples_are_kept(clients: list[Client]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel accepts; nobody answers
        outbox = filled(3)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        pusher = pusher_to(url, clients, outbox, timeout_s=0.05)
        assert pusher.step() > 0.0
    assert len(outbox) == 3


def test_what_is_not_http_is_a_failure_not_a_crash(clients: list[Client]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(b"220 mail.example ESMTP\r\n")

        thread = Thread(target=answer)
        thread.start()
        outbox = filled(1)
        assert pusher_to(f"http://127.0.0.1:{server.getsockname()[1]}", clients, outbox).step() > 0
        thread.join()
    assert len(outbox) == 1


YES = b"HTTP/1.1 202 Accepted\r\n"


@pytest.mark.parametrize(
    ("pieces", "goes_on"),
    [
        ([YES + b"date: now\r\ncontent-length: 2\r\n\r\n{}"], True),
        ([YES + b"Content-Length: 2\r\n\r\n", b"{", b"}"], True),
        ([YES, b"Content-Length: 2\r\n\r\n{}"], True),
        ([b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"], True),
        ([YES + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"], True),
        ([YES + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"], False),
        ([YES + b"Content-Length: 12345\r\n\r\n" + 12345 * b" "], True),
        ([YES + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"], True),
        ([YES + b"Content-Length: 2\r\n\r\n{}what follows"], True),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"], False),
    ],
)
def test_a_yes_is_understood_however_it_is_put(
    clients: list[Client], pieces: list[bytes], goes_on: bool
) -> None:
    """On the same connection, where the answer leaves it open; nothing of it is left over there."""
    peers: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5.0)

        def answer() -> None:
            for at in range(1 if goes_on else 2):
                peer, _ = server.accept()
                with peer:
                    for _ in range(2 if goes_on else 1):
                        peers.append(at)
                        received = b""
                        while not received.endswith(b"body"):
                            received += peer.recv(65_536)
                        for piece in pieces:
                            peer.sendall(piece)
                            sleep(0.02)

        thread = Thread(target=answer)
        thread.start()
        client = Client(parse_endpoint(f"http://127.0.0.1:{server.getsockname()[1]}"), TOKEN)
        clients.append(client)
        outcomes = [client.post(b"body") for _ in range(2)]
        thread.join()
    assert outcomes == [Outcome(Kind.ACCEPTED)] * 2
    assert peers == ([0, 0] if goes_on else [0, 1])


def test_a_yes_that_is_cut_short_is_asked_for_again(clients: list[Client]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5.0)

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                for length in (2, 9):
                    peer.recv(65_536)
                    peer.sendall(YES + b"Content-Length: %d\r\n\r\n{}" % length)
            peer, _ = server.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(YES + b"Content-Length: 2\r\n\r\n{}")

        thread = Thread(target=answer)
        thread.start()
        client = Client(parse_endpoint(f"http://127.0.0.1:{server.getsockname()[1]}"), TOKEN)
        clients.append(client)
        assert [client.post(b"body").kind for _ in range(2)] == [Kind.ACCEPTED] * 2
        thread.join()


def test_a_connection_closed_while_idle_is_made_anew_at_once(
    controller: Controller, clients: list[Client]
) -> None:
    controller.answers = [(202, "close quietly")]
    outbox = filled(1)
    pusher = pusher_to(controller.url, clients, outbox)
    assert pusher.step() == 0.0
    outbox.put(sample(1.0))
    assert pusher.step() == 0.0
    assert controller.times() == [0.0, 1.0]
    assert controller.connections == 2


def test_a_full_outbox_drops_the_oldest_and_counts_them() -> None:
    outbox = filled(5, capacity=3)
    assert outbox.dropped == 2
    taken = outbox.take(2)
    assert [entry.at_s for entry in taken] == [2.0, 3.0]
    outbox.put(sample(5.0))
    outbox.put(sample(6.0))
    outbox.put_back(taken)  # room for none of these but the newest three in all
    assert outbox.dropped == 4
    assert [entry.at_s for entry in outbox.take(9)] == [4.0, 5.0, 6.0]


def test_the_token_is_in_no_log_even_if_the_controller_echoes_it(
    controller: Controller, clients: list[Client], caplog: pytest.LogCaptureFixture
) -> None:
    controller.answers = [(401, f"bad token {TOKEN}"), (503, f"{TOKEN}?")]
    with caplog.at_level(logging.DEBUG):
        pusher = pusher_to(controller.url, clients, filled(11))
        pusher.step()
        pusher.step()
    assert len(caplog.records) == 2
    assert "[token]" in caplog.text
    assert TOKEN not in caplog.text


def test_waits_double_up_to_a_limit_with_jitter() -> None:
    for failures, longest_s in [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (5000, 30.0)]:
        waits = [wait_s(failures, Random(seed)) for seed in range(50)]
        assert longest_s / 2 <= min(waits)
        assert max(waits) < longest_s
        assert len(set(waits)) == 50


def test_messages_that_never_repeat_do_not_fill_log_or_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers = iter(range(1000))
    outbox = filled(1000, capacity=1000)
    pusher = Pusher(
        outbox, lambda _: Outcome(Kind.REFUSED, str(next(numbers))), lambda _: b"", Random(1)
    )
    pusher.step()
    assert pusher.refused == 1000
    assert len(caplog.records) == 64


def test_the_last_sample_is_sent_when_the_outbox_closes() -> None:
    outbox = filled(1)
    outbox.close()
    sent: list[bytes] = []

    def post(body: bytes) -> Outcome:
        sent.append(body)
        if len(sent) == 1:
            outbox.put(sample(1.0))
        return Outcome(Kind.ACCEPTED)

    Pusher(outbox, post, lambda _: b"x", Random(1)).run()
    assert len(sent) == 2


def test_a_closing_agent_does_not_wait_for_a_controller_that_is_away() -> None:
    outbox = filled(1)

    def post(body: bytes) -> Outcome:
        outbox.close()
        return Outcome(Kind.FAILED, "away")

    Pusher(outbox, post, lambda _: b"x", Random(1)).run()
    assert len(outbox) == 1


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h", "http://h:80/v1/samples"),
        ("https://h/dial/", "https://h:443/dial/v1/samples"),
        ("http://[::1]:9180", "http://[::1]:9180/v1/samples"),
    ],
)
def test_the_controllers_address_is_a_base_url(url: str, shown: str) -> None:
    assert str(parse_endpoint(url)) == shown


@pytest.mark.parametrize(
    "url",
    [
        "h:9180",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://h/?a=1",
        "http://h/a b",
        "http://[x",
    ],
)
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="allowed: http"):
        parse_endpoint(url)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(SettingError) as error:
        parse_endpoint("http://me:hunter2@h")
    assert "hunter2" not in str(error.value)
