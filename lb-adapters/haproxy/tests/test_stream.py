"""From sockets and files to the reader, and what happens when it is slow."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from dial.adapter import Severity
from dial.conformance import LogReader, reading_log
from dial.errors import BalancerError, BalancerUnreachable
from dial.logs import BatchQueue, FollowedFile, Follower, LogStream
from dial.ports import free_port
from dial_haproxy import create
from dial_haproxy.parser import LogParser

GOOD = b"app,s1,1795211945545012,1795211945546393,0,0,1,1,200,----,0,0,-\n"


def batch(rows: int, malformed: int = 0):
    return LogParser("app", "dial").feed(GOOD * rows + b"garbage\n" * malformed)


async def test_a_full_queue_drops_its_oldest_batches_whole_and_counts_them():
    queue = BatchQueue(max_requests=10)
    for rows in (4, 5, 3):
        queue.put(batch(rows, malformed=1))
    # 4 + 5 + 3 > 10, so the 4 go; their malformed line is still told
    assert queue.dropped_requests == 4
    first, second = await queue.get(), await queue.get()
    assert (len(first), first.malformed, first.dropped) == (5, 2, 4)
    assert (len(second), second.malformed, second.dropped) == (3, 1, 0)


async def test_the_newest_batch_stays_however_large():
    queue = BatchQueue(max_requests=1)
    queue.put(batch(5))
    assert len(await queue.get()) == 5


async def test_garbage_alone_takes_no_memory_and_is_told():
    queue = BatchQueue(max_requests=1)
    for _ in range(1000):
        queue.put(batch(0, malformed=2))
    assert (await queue.get()).malformed == 2000


async def test_closing_ends_a_reader_that_waits():
    queue = BatchQueue(max_requests=1)
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.close()
    assert await waiting is None


def test_a_followed_file_begins_at_its_end(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"history\n")
    file = FollowedFile(path)
    assert file.read_new() == b""
    with path.open("ab") as log:
        log.write(b"new\n")
    assert file.read_new() == b"new\n"
    file.close()


def read_all(file: FollowedFile) -> bytes:
    data = b""
    while more := file.read_new():
        data += more
    return data


def test_a_followed_file_is_read_to_its_end_before_its_successor(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"")
    file = FollowedFile(path)
    with path.open("ab") as old:
        path.rename(tmp_path / "log.1")
        old.write(b"last of the old\n")
        old.flush()
        assert read_all(file) == b"last of the old\n"
        path.write_bytes(b"first of the new\n")
    assert read_all(file) == b"\nfirst of the new\n"
    file.close()


def test_a_truncated_file_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"")
    file = FollowedFile(path)
    with path.open("ab") as log:
        log.write(b"a long line cut")
        log.flush()
        assert read_all(file) == b"a long line cut"
        os.truncate(path, 0)
        log.write(b"new\n")
        log.flush()
    assert read_all(file) == b"\nnew\n"
    file.close()


def test_a_successor_that_cannot_be_read_yet_is_read_when_it_can_be(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"")
    file = FollowedFile(path)
    path.rename(tmp_path / "log.1")
    path.mkdir()  # as unreadable to root as a file before its chown is to others
    assert file.read_new() == b"\n"
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            file.read_new()
    path.rmdir()
    path.write_bytes(b"first of the new\n")
    assert read_all(file) == b"first of the new\n"
    file.close()


async def test_a_source_that_fails_ends_the_log_with_its_error(tmp_path):
    def fail(data: bytes) -> None:
        raise ZeroDivisionError

    async def open_source(sink):
        return Follower(FollowedFile(tmp_path / "log"), 0.01, fail)

    stream = LogStream("log", open_source, max_queued_requests=10)
    reading = asyncio.ensure_future(anext(stream.batches()))
    await stream.opened.wait()
    (tmp_path / "log").write_bytes(b"line\n")
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5.0):
            await reading


def test_a_file_that_appears_later_is_read_whole(tmp_path):
    file = FollowedFile(tmp_path / "log")
    assert file.read_new() == b""
    (tmp_path / "log").write_bytes(b"first\n")
    assert read_all(file) == b"first\n"
    file.close()


def adapter_on(log: str, **options):
    return create("app", {"socket": "/nowhere/s", "log": log, "check_wait_s": 0.0} | options)


async def read_until(adapter, rows: int, write) -> LogReader:
    reader = LogReader()
    task = asyncio.create_task(reader.read(adapter))
    await adapter.log_opened()
    write()
    await reader.until(rows=rows)
    await adapter.aclose()
    await task
    return reader


async def test_a_followed_file_gives_rows(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(GOOD)

    def write():
        with path.open("ab") as log:
            log.write(GOOD * 3)

    adapter = adapter_on(f"file:{path}", log_format="dial", poll_s=0.01)
    assert (await read_until(adapter, 3, write)).rows == 3


@pytest.mark.parametrize("sampled", [1, 10])
async def test_a_line_stands_for_as_many_requests_as_the_option_says(tmp_path, sampled):
    path = tmp_path / "log"
    path.write_bytes(b"")
    adapter = adapter_on(f"file:{path}", log_format="dial", poll_s=0.01, sampled=sampled)
    batches = adapter.requests()
    reading = asyncio.ensure_future(anext(batches))
    await adapter.log_opened()
    with path.open("ab") as log:
        log.write(GOOD * 3)
    async with asyncio.timeout(5.0):
        batch = await reading
    assert batch.stands_for == sampled
    await adapter.aclose()


async def test_a_stale_unix_socket_is_replaced_and_removed_afterwards(directory):
    path = directory / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stale:
        stale.bind(str(path))

    def write():
        assert path.stat().st_mode & 0o777 == 0o660
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(GOOD, str(path))

    await read_until(adapter_on(f"unixgram:{path}", log_format="dial"), 1, write)
    assert not path.exists()


async def test_a_file_in_the_way_of_a_unix_socket_is_left_alone(directory):
    path = directory / "log"
    path.write_text("precious")
    with pytest.raises(BalancerUnreachable, match="exists and is no socket"):
        await anext(adapter_on(f"unixgram:{path}").requests())
    assert path.read_text() == "precious"


async def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        adapter = adapter_on(f"tcp://127.0.0.1:{port}")
        with pytest.raises(BalancerUnreachable, match=f"tcp://127.0.0.1:{port}"):
            await anext(adapter.requests())
        errors = [f.what for f in await adapter.check() if f.severity is Severity.ERROR]
    assert any(str(port) in what for what in errors)


async def test_a_second_reader_is_refused(fake_harness):
    async with fake_harness() as harness, reading_log(harness):
        with pytest.raises(BalancerError, match="being read already"):
            await anext(harness.adapter.requests())


async def test_the_adapter_can_be_read_again_after_it_was_closed(fake_harness):
    async with fake_harness() as harness:
        for _ in range(2):
            async with reading_log(harness) as log:
                await harness.send(2)
                await log.until(rows=2)


async def test_check_says_when_lines_come_in_another_format(fake_harness):
    async with fake_harness() as harness, reading_log(harness) as log:
        await harness.garble(3)
        await log.until(malformed=3)
        errors = [f for f in await harness.adapter.check() if f.severity is Severity.ERROR]
    assert len(errors) == 1
    assert "log-format" in errors[0].fix


async def test_check_says_when_requests_pass_but_no_line_comes(real_harness):
    async with real_harness(log="syslog") as real:
        checked = asyncio.Event()

        async def keep_sending():
            while not checked.is_set():
                await real.send(1)

        elsewhere = create(
            "app",
            {
                "socket": str(real.runtime),
                "log": f"tcp://127.0.0.1:{free_port()}",
                "check_wait_s": 0.3,
            },
        )
        sending = asyncio.create_task(keep_sending())
        findings = await elsewhere.check()
        checked.set()
        await sending
    errors = [f for f in findings if f.severity is Severity.ERROR]
    assert len(errors) == 1
    assert "no line came" in errors[0].what
    assert "log ring@dial format raw local0" in errors[0].fix


async def test_check_warns_of_a_log_that_others_can_write():
    findings = await adapter_on(f"tcp://0.0.0.0:{free_port()}").check()
    assert any("make up log lines" in f.what for f in findings)


async def test_real_errors_and_aborts_are_told_apart(real_harness):
    async with real_harness() as real, reading_log(real) as log:
        # Each line before the next request: an answer is there before its line, and lines of two
        # threads may change places.
        for row, (path, status) in enumerate((("/500", 500), ("/404", 404), ("/drop", 502)), 1):
            assert await real.get(path) == status
            await log.until(rows=row)
    failed = [bool(f) for b in log.batches for f in b.failed]
    assert failed == [True, False, True]


async def until_read(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(5.0):
        return await reader.read()


async def test_lines_wait_to_be_read_together_until_the_balancer_is_read(fake_harness, monkeypatch):
    monkeypatch.setattr("dial_haproxy.sources.GATHER_S", 3600.0)
    async with fake_harness() as harness, reading_log(harness) as log:
        _, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(GOOD)
        await log.until(rows=1)
        writer.write(GOOD * 4)
        await writer.drain()
        await asyncio.sleep(0.05)
        assert log.rows == 1
        await harness.adapter.read()
        assert log.rows == 5
        writer.close()


async def test_more_connections_than_are_read_are_closed(fake_harness, monkeypatch):
    monkeypatch.setattr("dial_haproxy.sources.MAX_CONNECTIONS", 1)
    async with fake_harness() as harness, reading_log(harness) as log:
        _, first = await asyncio.open_connection("127.0.0.1", harness.port)
        first.write(GOOD)
        await log.until(rows=1)
        reader, second = await asyncio.open_connection("127.0.0.1", harness.port)
        assert await until_read(reader) == b""
        first.write(GOOD)
        await log.until(rows=2)
        first.close()
        second.close()


async def test_a_line_that_a_connection_ends_without_is_told(fake_harness):
    async with fake_harness() as harness, reading_log(harness) as log:
        _, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(GOOD + GOOD[:20])
        writer.close()
        await log.until(rows=1, malformed=1)


async def test_without_descriptors_a_connection_is_taken_once_there_is_one(
    fake_harness, monkeypatch
):
    monkeypatch.setattr("dial_haproxy.sources._RETRY_S", 0.01)
    refusals = [OSError(errno.EMFILE, "Too many open files")] * 3
    accept = socket.socket.accept

    def exhausted(listener):
        if refusals:
            raise refusals.pop()
        return accept(listener)

    async with fake_harness() as harness, reading_log(harness) as log:
        monkeypatch.setattr(socket.socket, "accept", exhausted)
        _, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(GOOD)
        await log.until(rows=1)
        assert refusals == []
        writer.close()


async def test_every_address_of_a_name_is_listened_on():
    port = free_port()
    adapter = adapter_on(f"tcp://localhost:{port}", log_format="dial")
    addresses = {found[4][0] for found in socket.getaddrinfo("localhost", port)}

    def write():
        for address in addresses:
            with socket.create_connection((address, port)) as sender:
                sender.sendall(GOOD)

    assert (await read_until(adapter, len(addresses), write)).rows == len(addresses)
