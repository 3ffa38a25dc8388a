"""What happens in a drill, to a service with DIAL or without, and where it can be seen."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import httpx

from benchmarks.support.arms import Arm, Server
from tests.e2e.application import CONFIGURED, until
from tests.e2e.product import DIAL, SAMPLES_EVERY_S, environment, sample

_OUTAGE_S = 5.0
"""How long what comes back is gone: five ticks, and longer than the lease lasts."""

Event = Callable[[Arm], Awaitable[None]]
Shown = Callable[[Arm], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill."""

    event: Event
    """What happens, to either arm; returns when it is over."""
    shown: Shown
    """Whether it can be seen of the arm with DIAL."""
    quiet: bool = False
    """There is no neighbour."""
    puts_back: bool = False
    """The configured weights are to be put back."""


# ---------------------------------------------------------------- what happens to DIAL


async def kill(arm: Arm) -> None:
    """Kill -9 of the controller."""
    if arm.has_dial:
        arm.signal_controller(signal.SIGKILL)


async def restart(arm: Arm) -> None:
    """Kill -9, and the service manager starts it again."""
    if arm.has_dial:
        arm.signal_controller(signal.SIGKILL)
        await arm.start_controller_again()


async def hang(arm: Arm) -> None:
    """The controller stops (SIGSTOP), and runs on later than its lease lasts."""
    if arm.has_dial:
        arm.signal_controller(signal.SIGSTOP)
        await asyncio.sleep(_OUTAGE_S)
        arm.signal_controller(signal.SIGCONT)


async def second(arm: Arm) -> None:
    """Another controller of the same service is started."""
    if arm.has_dial:
        config = arm.directory / "second.toml"
        config.write_text(arm.controller.config.read_text())
        with config.with_suffix(".log").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                DIAL, "controller", "--config", str(config), stderr=errors, env=environment()
            )
            await process.wait()


async def agent_dead(arm: Arm) -> None:
    """The victim's agent is gone."""
    arm.silent.add("s1")


async def agents_lie(arm: Arm) -> None:
    """All agents post numbers out of nowhere."""
    arm.silent.update(CONFIGURED)
    chance = random.Random(1)  # noqa: S311 - values of a liar, no secret
    end_s = time.monotonic() + 2.0 * _OUTAGE_S
    while arm.has_dial and time.monotonic() < end_s:
        for name in CONFIGURED:
            metrics = {
                "cpu_usr_cores": chance.uniform(0.0, 8.0),
                "run_queue_wait_cores": chance.uniform(0.0, 8.0),
                "throttled_fraction": chance.random(),
            }
            with suppress(httpx.HTTPError):
                await arm.controller.post(sample(name, denied=True, **metrics))
        await asyncio.sleep(SAMPLES_EVERY_S)


async def agents_frozen(arm: Arm) -> None:
    """All agents post the same sample of a denied CPU again and again."""
    arm.silent.clear()
    arm.denied.update(CONFIGURED)


async def clock_skew(arm: Arm) -> None:
    """The clock of the victim's VM jumps an hour ahead."""
    arm.silent.add("s1")
    if arm.has_dial:
        await arm.controller.post(sample("s1", denied=True, at_s=time.time() + 3600.0))


# ---------------------------------------------------------------- what happens to both


async def reload(arm: Arm) -> None:
    """HAProxy reloads."""
    await arm.proxy.reload()


async def restart_haproxy(arm: Arm) -> None:
    """HAProxy stops, and is started a second later."""
    await arm.proxy.stop()
    await asyncio.sleep(1.0)
    await arm.proxy.start()


async def socket_gone(arm: Arm) -> None:
    """The runtime socket disappears and comes back."""
    away = arm.proxy.runtime.with_name("away")
    arm.proxy.runtime.rename(away)
    await asyncio.sleep(_OUTAGE_S)
    away.rename(arm.proxy.runtime)


async def log_cut(arm: Arm) -> None:
    """The log's connection breaks, and nobody takes it for a while."""
    await arm.log.cut()
    await asyncio.sleep(_OUTAGE_S)
    await arm.log.start()


async def log_garbled(arm: Arm) -> None:
    """One byte in twenty of the log is another one."""
    chance = random.Random(1)  # noqa: S311 - noise, no secret

    def garble(chunk: bytes) -> bytes:
        return bytes(chance.randrange(256) if chance.random() < 0.05 else b for b in chunk)

    arm.log.change = garble
    await asyncio.sleep(_OUTAGE_S)
    arm.log.change = bytes


async def drained(arm: Arm) -> None:
    """The admin drains s3 for a while."""
    await arm.proxy.admin("set server app/s3 state drain")
    await asyncio.sleep(_OUTAGE_S)
    await arm.proxy.admin("set server app/s3 state ready")


async def maintenance(arm: Arm) -> None:
    """The admin takes s3 into maintenance for a while."""
    await arm.proxy.admin("set server app/s3 state maint")
    await asyncio.sleep(_OUTAGE_S)
    await arm.proxy.admin("set server app/s3 state ready")


async def added(arm: Arm) -> None:
    """The admin adds a server, and removes it again."""
    member = Server(arm.directory / "s4")
    await member.start()
    await arm.proxy.admin(f"add server app/s4 unix@{member.path} weight 100")
    await arm.proxy.admin("set server app/s4 state ready")
    await asyncio.sleep(_OUTAGE_S)
    await arm.proxy.admin("set server app/s4 state maint")

    async def removed() -> bool:
        return "deleted" in await arm.proxy.admin("del server app/s4")

    await until(removed, "s4 is idle and removed")
    await member.close()


# ---------------------------------------------------------------- where it can be seen


def trouble(words: str) -> Shown:
    """In the state's trouble."""

    async def look(arm: Arm) -> bool:
        return words in str((await arm.controller.state())["trouble"])

    return look


def counted(metric: str, **labels: str) -> Shown:
    """In a metric."""

    async def look(arm: Arm) -> bool:
        return await arm.controller.metric(metric, **labels) > 0.0

    return look


def of_backend(name: str, shows: Callable[[dict[str, object]], bool]) -> Shown:
    """In a backend's row of the state."""

    async def look(arm: Arm) -> bool:
        return shows(await arm.controller.backend(name))

    return look


async def put_back_by_watchdog(arm: Arm) -> bool:
    """In the watchdog's log."""
    return "configured weights put back" in arm.watchdog.log()


async def went_on(arm: Arm) -> bool:
    """In the new controller's log."""
    return "goes on from what was learnt" in arm.controller.log()


async def refused(arm: Arm) -> bool:
    """On the second controller's standard error."""
    said = arm.directory / "second.log"
    return said.exists() and "already; one service has one controller" in said.read_text()


OUT = of_backend("s3", lambda row: row.get("usable") is False)
NO_NEIGHBOUR = of_backend("s1", lambda row: row.get("cause") == "none")
NO_SAMPLE = of_backend("s1", lambda row: row.get("agent") is not None)

DRILLS = {
    "kill": Drill(kill, put_back_by_watchdog, puts_back=True),
    "restart": Drill(restart, went_on),
    "hang": Drill(hang, counted("dial_lease_lapses_total"), puts_back=True),
    "two controllers": Drill(second, refused),
    "haproxy reload": Drill(reload, counted("dial_plans_total", action="restore")),
    "haproxy restart": Drill(restart_haproxy, counted("dial_balancer_unreachable_total")),
    "socket gone": Drill(socket_gone, trouble("No such file")),
    "agent dead": Drill(agent_dead, NO_SAMPLE),
    "agents lie": Drill(agents_lie, NO_NEIGHBOUR, quiet=True),
    "agents frozen": Drill(agents_frozen, NO_NEIGHBOUR, quiet=True),
    "clock skew": Drill(clock_skew, counted("dial_sample_batches_refused_total", reason="future")),
    "log cut": Drill(
        log_cut, of_backend("s1", lambda row: "no log line came" in str(row.get("t_x_ms")))
    ),
    "log garbled": Drill(log_garbled, counted("dial_log_lines_malformed_total")),
    "drained": Drill(drained, OUT),
    "maintenance": Drill(maintenance, OUT),
    "added and removed": Drill(added, of_backend("s4", bool)),
}
