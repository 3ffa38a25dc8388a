"""The README's "Use it with your HAProxy", done as it is written there.

Lines and commands are taken from the pages themselves; only addresses and paths are others.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

from .application import until
from .product import DIAL, TOKEN, environment, run_dial
from .stack import start_stack

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ADAPTERS_PAGE = (ROOT / "lb-adapters" / "haproxy" / "README.md").read_text()


def steps() -> str:
    """The README's section."""
    return README.split("## Use it with your HAProxy\n")[1].split("\n## ")[0]


def commands() -> list[list[str]]:
    """What it says to run, in its order."""
    return [shlex.split(command) for command in re.findall(r"`(dial [^`]+)`", steps())]


def configuration() -> str:
    """Its dial.toml."""
    found = re.search(r"Write `dial.toml`:\n\n((?: {7}.*\n|\n)+)", steps())
    assert found is not None
    return dedent(found[1])


def lines_to_add() -> dict[str, str]:
    """The adapter's page: lines for haproxy.cfg, by the section they belong to."""
    block = ADAPTERS_PAGE.split("## What you add to haproxy.cfg\n\n```\n")[1].split("```")[0]
    sections = re.findall(r"^(\w+)(.*)\n((?: +.*\n|\n)+)", block, re.MULTILINE)
    return {
        kind: body if kind != "ring" else f"ring{name}\n{body}" for kind, name, body in sections
    }


def with_lines(existing: str) -> str:
    """haproxy.cfg as the admin leaves it."""
    add = lines_to_add()
    assert add.keys() == {"global", "ring", "frontend"}
    changed = existing.replace("global\n", f"global\n{add['global']}")
    changed = re.sub(r"(frontend .*\n)", lambda found: found[1] + add["frontend"], changed)
    return f"{changed}\n{add['ring']}"


async def test_the_readme_leads_from_an_existing_haproxy_to_a_controller_that_shows() -> None:
    async with start_stack(run=False) as stack:
        proxy, config = stack.proxy, stack.controller.config
        config.with_name("token").write_text(TOKEN)
        own = {
            "/run/haproxy/dial.sock": str(proxy.runtime),
            "127.0.0.1:5140": f"{proxy.log_host}:{proxy.log_port}",
            "/etc/dial/token": str(config.with_name("token")),
            "/var/lib/dial/app.lease": str(config.with_name("app.lease")),
            "/etc/haproxy/haproxy.cfg": str(stack.directory / "before.cfg"),
            "dial.toml": str(config),
            "FILE": str(config.with_name("token")),
        }

        def adapted(text: str) -> str:
            for theirs, mine in own.items():
                text = text.replace(theirs, mine)
            return text

        check_file, check, controller, agent, agent_once, status, explain, watchdog = (
            [adapted(word) for word in command[1:]] for command in commands()
        )
        assert watchdog == ["watchdog", "--config", str(config)]
        servers = proxy.config().split("\nbackend app\n")[1]
        existing = f"""
global
    maxconn 200
defaults
    mode http
    timeout connect 1s
    timeout client 5s
    timeout server 5s
frontend web
    bind unix@{stack.directory}/fe
    default_backend app
backend app
{servers}"""
        await proxy.stop()
        proxy.runtime.unlink()
        await proxy.start(existing)

        # 1, before the lines are there: each one that is missing is named, of the file ...
        (stack.directory / "before.cfg").write_text(existing)
        code, out, err = await run_dial(*check_file)
        assert (code, err) == (1, "")
        for line in ("log-format", "ring dial", "level admin"):
            assert line in out

        # ... and, with 2, of what runs.
        config.write_text(adapted(configuration()))
        code, out, err = await run_dial(*check)
        assert (code, err) == (1, "")
        assert f"error    runtime socket unix:{proxy.runtime}: No such file or directory" in out
        for body in lines_to_add().values():
            for line in body.splitlines():
                assert adapted(line).strip() in out

        # 3
        await proxy.stop()
        await proxy.start(adapted(with_lines(existing)))
        code, out, err = await run_dial(*check)
        assert (code, err) == (0, ""), out
        assert ": 0 errors, 0 warnings, " in out
        assert controller == ["controller", "--config", str(config)]
        await stack.controller.start()

        # 4
        own["http://CONTROLLER:9180"] = stack.controller.url
        with (stack.directory / "agent.log").open("wb") as log:
            running = await asyncio.create_subprocess_exec(
                DIAL, *map(adapted, agent), stderr=log, env=environment()
            )

        async def sampled() -> bool:
            s1 = await stack.controller.backend("s1")
            return bool(s1) and s1["agent"] is None

        try:
            await until(sampled, "a sample of s1's agent")
            assert await stack.controller.ready()
        finally:
            with suppress(ProcessLookupError):
                running.terminate()
            assert await running.wait() == 0

        # 4 (what the agent sees) and 5, at once, for each takes a second to start
        url = ("--url", stack.controller.url)
        once, at_a_glance, in_words = await asyncio.gather(
            run_dial(*agent_once), run_dial(*status, *url), run_dial(*explain, *url)
        )
        code, out, err = once
        assert (code, err) == (0, "")
        assert "cpu_usr_cores" in json.loads(out)["metrics"]
        code, out, err = at_a_glance
        assert (code, err) == (0, "")
        heading, plan, columns, *rows = out.splitlines()
        assert heading.startswith("app (haproxy), shadow, tick ")
        assert plan == "hold: no neighbour found"
        assert columns.split()[0] == "backend"
        assert [row.split()[0] for row in rows] == ["s1", "s2", "s3"]
        code, out, err = in_words
        assert (code, err) == (0, "")
        assert out.startswith("s1 of app, tick ")
        assert "Verdict: none" in out
        assert "Weight 100 in force (configured: 100)" in out
        assert "shadow mode: plans are shown, never written" in out
