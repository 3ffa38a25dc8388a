"""The controller in front of a real HAProxy: load moves, comes back, and survives restarts."""

from __future__ import annotations

from .application import CONFIGURED, until
from .product import run_dial
from .stack import Stack, start_stack


async def test_load_moves_away_from_a_neighbour_and_comes_back_and_all_of_it_replays() -> None:
    async with start_stack() as stack:
        await stack.learnt()
        rows = (await stack.controller.state())["backends"]
        for row in rows:
            # The member answers after 30 ms, so no true T90 is below that.
            assert row["t_x_ms"] >= 30.0
            assert row["rate_per_s"] > 0.0
            assert row["cause"] == "none"
        assert await stack.controller.metric("dial_weight_writes_total", result="ok") == 0.0

        stack.neighbour("s1", there=True)
        weights = await stack.moved_away_from("s1")
        assert min(weights.values()) >= 1

        async def named() -> bool:
            return bool((await stack.controller.backend("s1"))["cause"] == "cpu")

        # Load moves before the cause is known where a backend is far slower than its siblings.
        await until(named, "the cause named")
        s1 = await stack.controller.backend("s1")
        assert 0.5 <= s1["rho_bg"] <= 1.0
        stack.neighbour("s1", there=False)
        await stack.configured()
        assert await stack.controller.stop() == 0

        code, out, err = await run_dial("replay", str(stack.directory / "ticks.jsonl"))
        assert (code, err) == (0, "")
        assert out.endswith("ticks replayed: every plan is the same\n")


class ByDelay(Stack):
    by_delay = True


async def test_where_requests_go_by_delay_the_victims_weight_falls_and_the_others_stay() -> None:
    async with start_stack(ByDelay) as stack:
        await stack.learnt()
        stack.neighbour("s1", there=True)

        async def moved() -> bool:
            weights = await stack.proxy.weights()
            parts = {name: weights[name] / CONFIGURED[name] for name in weights}
            return parts["s1"] < 0.8 * parts["s2"] and parts["s2"] == parts["s3"]

        await until(moved, "s1 has less weight beside the others than it was configured with")
        # One that is idle has hardly a request: it is probed, and shows that its neighbour is gone.
        stack.neighbour("s1", there=False)
        await stack.configured()
        assert await stack.controller.stop() == 0


async def test_a_haproxy_that_was_gone_gets_the_weights_again_and_a_stop_takes_them_back() -> None:
    async with start_stack() as stack:
        await stack.learnt()
        stack.neighbour("s2", there=True)
        await stack.moved_away_from("s2")

        await stack.proxy.stop()

        async def lost() -> dict[str, str]:
            answer = await stack.controller.get("/readyz")
            return dict(answer.json()["error"]) if answer.status_code == 503 else {}

        error = await until(lost, "not ready")
        assert error["code"] == "not_ready"
        assert f"runtime socket unix:{stack.proxy.runtime}: " in error["message"]
        assert (await stack.controller.get("/healthz")).status_code == 200
        assert await stack.controller.metric("dial_balancer_unreachable_total") >= 1.0

        await stack.proxy.start()
        await stack.moved_away_from("s2")
        assert await stack.controller.metric("dial_plans_total", action="restore") >= 1.0
        await until(stack.controller.ready, "ready again")

        assert await stack.controller.stop() == 0
        assert await stack.proxy.weights() == CONFIGURED


async def test_shadow_mode_shows_the_change_and_writes_nothing() -> None:
    async with start_stack(mode="shadow") as stack:
        await stack.learnt()
        stack.neighbour("s1", there=True)

        async def planned() -> bool:
            s1 = await stack.controller.backend("s1")
            return bool(s1["cause"] != "none" and s1["share"] < 0.2)  # half of the configured 0.4

        await until(planned, "a plan that moves load away from s1")
        await stack.controller.ticks(2)
        state = await stack.controller.state()
        assert state["mode"] == "shadow"
        assert "s1" in dict(state["changes"])
        assert state["report"] is None
        assert await stack.proxy.weights() == CONFIGURED
        for result in ("ok", "failed"):
            assert await stack.controller.metric("dial_weight_writes_total", result=result) == 0.0
        assert await stack.controller.stop() == 0
        assert await stack.proxy.weights() == CONFIGURED
