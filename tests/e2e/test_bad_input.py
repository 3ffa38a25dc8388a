"""Bad input: one clear error that names what and where, counted, and no weight changes.

What is refused here is as convincing as it can be.  One member *is* slow and its agent is
silent, so only the word "CPU denied" is missing for load to move away from it; every bad
post says so.  While bad log lines come, the agent of another one says it, so that only slow
requests are missing; every bad line claims one.  The last test sends the same posts and
lines without a fault, and load moves.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

import pytest
import pytest_asyncio

from dial_haproxy.testing import send_log

from .application import CONFIGURED, log_address, until
from .product import DIAL, environment, run_dial, sample
from .stack import SLOW_S, Stack, start_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(haproxy: None) -> AsyncIterator[Stack]:
    """In mid-suspicion: see the module."""
    async with start_stack(interval_s="0.2", blind_rho_bg="1.0") as stack:
        await stack.learnt()
        stack.silent.add("s1")
        stack.members["s1"].delay_s = SLOW_S

        async def suspected() -> bool:
            return bool((await stack.controller.backend("s1"))["cause"] == "unknown")

        await until(suspected, "s1 is slow for reasons unknown")
        yield stack


def one_error(text: str) -> str:
    """The only line of standard error that is a command's error; the others are its log."""
    (line,) = [line for line in text.splitlines() if line.startswith("dial: ")]
    assert text.endswith(f"{line}\n")
    return line


# ---------------------------------------------------------------- posts of agents


BAD_POSTS: dict[str, tuple[Callable[[], bytes], int, str, str, str]] = {
    "a value that is no number": (
        lambda: sample("s1", denied=True, cpu_steal_cores=float("nan")),
        422,
        "not_finite",
        "samples[0].metrics.cpu_steal_cores",
        "backend 's1': samples[0].metrics.cpu_steal_cores = nan: must be a finite number from 0",
    ),
    "a negative value": (
        lambda: sample("s1", denied=True, cpu_usr_cores=-0.25),
        422,
        "negative",
        "samples[0].metrics.cpu_usr_cores",
        "backend 's1': samples[0].metrics.cpu_usr_cores = -0.25: must be a finite number from 0",
    ),
    "an hour old": (
        lambda: sample("s1", denied=True, at_s=time.time() - 3600.0),
        422,
        "stale",
        "samples[0].at_s",
        " s old by the controller's clock, at most 60 s are allowed; if it is new, compare the",
    ),
    "an hour ahead": (
        lambda: sample("s1", denied=True, at_s=time.time() + 3600.0),
        422,
        "future",
        "samples[0].at_s",
        " s in the future of the controller's clock, at most",
    ),
    "a backend HAProxy does not know": (
        lambda: sample("s9", denied=True),
        422,
        "unknown_backend",
        "backend",
        "backend 's9': the load balancer has no backend of that name; it has: s1, s2, s3",
    ),
    "cut short": (
        lambda: sample("s1", denied=True)[:-9],
        400,
        "malformed",
        "body",
        "body is not JSON: ",
    ),
}


@pytest.mark.parametrize("fault", BAD_POSTS)
async def test_a_bad_post_is_refused_counted_and_changes_no_weight(
    stack: Stack, fault: str
) -> None:
    make, status, code, where, message = BAD_POSTS[fault]
    await refused(stack, make, status, code, where, message)


async def test_a_wrong_token_is_refused_counted_and_changes_no_weight(stack: Stack) -> None:
    await refused(
        stack,
        lambda: sample("s1", denied=True),
        401,
        "unauthorized",
        "Authorization",
        "wrong token: send 'Authorization: Bearer TOKEN'",
        token="not-the-token",
    )
    assert "not-the-token" not in stack.controller.log()


async def refused(
    stack: Stack,
    make: Callable[[], bytes],
    status: int,
    code: str,
    where: str,
    message: str,
    **token: str,
) -> None:
    """Post in every one of three ticks: two with the same class would move load."""
    counted = "dial_sample_batches_refused_total"
    before = await stack.controller.metric(counted, reason=code)
    for _ in range(3):
        answer = await stack.controller.post(make(), **token)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["where"]) == (status, code, where)
        assert message in error["message"]
        await stack.controller.ticks(1)
    assert await stack.controller.metric(counted, reason=code) == before + 3
    assert await stack.proxy.weights() == CONFIGURED
    assert await stack.controller.metric("dial_weight_writes_total", result="ok") == 0.0


async def test_an_agent_with_a_wrong_token_says_so_once(stack: Stack) -> None:
    file = stack.directory / "wrong"
    file.write_text("not-the-token")
    log = stack.directory / "agent.log"
    with log.open("wb") as errors:
        agent = await asyncio.create_subprocess_exec(
            *(DIAL, "agent", "--controller", stack.controller.url, "--backend", "s1"),
            *("--token-file", str(file), "--interval-s", "0.1"),
            stderr=errors,
            env=environment(),
        )
    said = "controller refused samples: "

    async def says() -> bool:
        return said in log.read_text()

    try:
        await until(says, "the agent says that it was refused")
        await stack.controller.ticks(2)
        agent.terminate()
        assert await agent.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            agent.kill()
        await agent.wait()
    (line,) = [line for line in log.read_text().splitlines() if said in line]
    assert "401" in line
    assert "wrong token" in line
    assert "not-the-token" not in log.read_text()
    assert await stack.proxy.weights() == CONFIGURED


# ---------------------------------------------------------------- log lines


def slow_request() -> bytes:
    """What HAProxy would log of a request that took s2 nine seconds."""
    now_us = int(time.time() * 1e6)
    return b"app,s2,%d,%d,0,0,9000,9000,200,----,0,0,-" % (now_us - 9_000_000, now_us)


BAD_LINES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda line: line[:-12] + b"\n",
    "cut off with the connection": lambda line: line,
    "garbled": lambda line: line.replace(b",", b";") + b"\n",
    "binary": lambda line: bytes(range(11, 256)) + line + b"\n",
    "two run together": lambda line: line[:-20] + line + b"\n",
    "a number that is none": lambda line: line.replace(b",9000,", b",9e3,") + b"\n",
}
"""Each sends one line that cannot be read."""


@pytest.fixture
def s2_denied(stack: Stack) -> Iterator[None]:
    """Not for longer than needed: what quiet times show becomes the normal."""
    stack.denied.add("s2")
    yield
    stack.denied.discard("s2")


@pytest.mark.parametrize("fault", BAD_LINES)
async def test_a_bad_log_line_is_named_counted_and_changes_no_weight(
    stack: Stack, s2_denied: None, fault: str
) -> None:
    counted = "dial_log_lines_malformed_total"
    before = await stack.controller.metric(counted)
    log_before = stack.controller.log()
    for _ in range(3):
        line = BAD_LINES[fault](slow_request())
        await send_log(stack.proxy.log_host, stack.proxy.log_port, line)
        await stack.controller.ticks(1)

    async def all_counted() -> bool:
        return await stack.controller.metric(counted) >= before + 3

    await until(all_counted, "three lines counted")
    assert await stack.controller.metric(counted) == before + 3
    said = stack.controller.log().removeprefix(log_before)
    log = re.escape(f"log tcp://{stack.proxy.log_host}:{stack.proxy.log_port}")
    assert re.search(rf"warning.*{log}: line b['\"].* is not in format dial", said)
    assert await stack.proxy.weights() == CONFIGURED
    assert await stack.controller.metric("dial_weight_writes_total", result="ok") == 0.0


# ---------------------------------------------------------------- settings


async def test_values_out_of_range_are_one_line(stack: Stack) -> None:
    config = stack.directory / "wrong.toml"
    text = stack.settings(mode="enforced", interval_s="0.0")
    config.write_text(text.replace("min_requests = 3", "min_requests = 0"))
    code, out, err = await run_dial("controller", "--config", str(config))
    assert (code, out) == (2, "")
    assert err == (
        f"dial: {config}: mode = 'enforced': Input should be 'shadow' or 'enforce'; "
        "interval_s = 0.0: Input should be greater than 0; "
        "guards.min_requests = 0: Input should be greater than or equal to 1\n"
    )
    assert await stack.proxy.weights() == CONFIGURED


def elsewhere(stack: Stack, **changes: str) -> str:
    """A configuration that reads another log than the controller that runs."""
    host, port = log_address()
    mine = f"{stack.proxy.log_host}:{stack.proxy.log_port}"
    return stack.settings(**changes).replace(mine, f"{host}:{port}")


async def test_a_wrong_socket_path_is_one_line(stack: Stack) -> None:
    config = stack.directory / "socket.toml"
    nowhere = f"{stack.directory}/nowhere.sock"
    config.write_text(elsewhere(stack, socket=nowhere))
    code, _, err = await run_dial("controller", "--config", str(config))
    assert code == 2
    assert one_error(err) == f"dial: runtime socket unix:{nowhere}: No such file or directory"
    assert await stack.proxy.weights() == CONFIGURED


async def test_a_service_haproxy_does_not_know_is_one_line_with_those_it_knows(
    stack: Stack,
) -> None:
    config = stack.directory / "service.toml"
    config.write_text(elsewhere(stack, service="appp"))
    code, _, err = await run_dial("controller", "--config", str(config))
    assert code == 2
    assert one_error(err) == ("dial: service = 'appp': HAProxy has no such backend; there are: app")
    assert await stack.proxy.weights() == CONFIGURED


# ---------------------------------------------------------------- and the control


async def test_the_same_posts_and_log_lines_without_a_fault_move_load(
    stack: Stack, s2_denied: None
) -> None:
    """Last of this file, for it ends the suspense that the others need."""
    assert await stack.proxy.weights() == CONFIGURED

    async def both_found() -> bool:
        await stack.controller.post(sample("s1", denied=True))
        lines = (slow_request() + b"\n") * 20
        await send_log(stack.proxy.log_host, stack.proxy.log_port, lines)
        rows = {row["name"]: row for row in (await stack.controller.state())["backends"]}
        return all(rows[name]["cause"] == "cpu" for name in ("s1", "s2"))

    await until(both_found, "neighbours of s1 and s2 found")
    assert await stack.controller.metric("dial_weight_writes_total", result="ok") > 0.0
    assert await stack.proxy.weights() != CONFIGURED
