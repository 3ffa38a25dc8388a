"""The controller in front of a real Envoy, with endpoints and log in files."""

from __future__ import annotations

from .application import CONFIGURED, until
from .envoy import EnvoyStack
from .product import run_dial
from .stack import start_stack


async def test_load_moves_away_outlives_a_killed_controller_and_comes_back() -> None:
    async with start_stack(EnvoyStack) as stack:
        await stack.learnt()
        assert await stack.proxy.weights() == CONFIGURED
        stack.neighbour("s1", there=True)
        await stack.moved_away_from("s1")

        process = stack.controller.process
        assert process is not None
        process.kill()
        await process.wait()
        shifted = await stack.proxy.weights()
        assert shifted["s1"] < CONFIGURED["s1"]
        assert await stack.proxy.get()

        # Another one goes on with the weights it finds, and gives the load back when it is time.
        await stack.controller.start()
        await until(stack.controller.ready, "the controller is ready again")
        assert (await stack.proxy.weights())["s1"] < CONFIGURED["s1"]
        stack.neighbour("s1", there=False)
        await stack.configured()
        assert await stack.controller.metric("dial_adapter_events_total", event="xds_nacks") == 0.0

        code, out, _ = await run_dial("check", str(stack.controller.config))
        assert code == 0, out
        assert "has all 3 endpoints" in out
        assert await stack.controller.stop() == 0
        assert await stack.proxy.weights() == CONFIGURED
