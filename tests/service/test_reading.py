"""What is shown beside the state: verdicts, plans, histories, the timeline, the model."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from dial.controller.snapshot import Publisher, Snapshot
from dial.service.parts import Parts
from dial.types import Action, Mode, NoData, Orders, Override


def at_tick(snapshot: Snapshot, tick: int, **changes: object) -> Snapshot:
    assert snapshot.observation is not None
    assert snapshot.plan is not None
    return replace(
        snapshot,
        at_s=snapshot.at_s + tick,
        observation=replace(snapshot.observation, tick=tick),
        plan=replace(snapshot.plan, tick=tick),
        **changes,
    )


async def test_a_backend_alone_and_one_that_is_not_there(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot
) -> None:
    publisher.publish(after)
    names = [row["name"] for row in (await client.get("/v1/backends")).json()]
    assert names == ["s1", "s2"]
    assert (await client.get("/v1/backends/s1")).json()["cause"] == "cpu"
    answer = await client.get("/v1/backends/s9")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert "it has: s1, s2" in answer.json()["error"]["message"]


async def test_verdicts_say_why_in_one_line_and_survive_a_tick_without_a_plan(
    client: httpx.AsyncClient, publisher: Publisher, before: Snapshot, after: Snapshot
) -> None:
    assert (await client.get("/v1/verdicts")).json() == []
    publisher.publish(after)
    publisher.publish(replace(before, trouble="no answer"))
    s1, s2 = (await client.get("/v1/verdicts")).json()
    assert (s1["backend"], s1["cause"], s1["slow"]) == ("s1", "cpu", True)
    assert (s1["summary"], s1["t_x_ms"]) == ("T_x 40 ms, expected 12.5 ms", 40.0)
    assert (s2["cause"], s2["slow"]) == ("none", False)


async def test_plans_are_the_last_n_oldest_first(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot
) -> None:
    for tick in (7, 8, 9):
        publisher.publish(at_tick(after, tick))
    answer = await client.get("/v1/plans", params={"last": 2})
    assert [plan["tick"] for plan in answer.json()] == [8, 9]


async def test_a_history_is_columns_with_null_where_nothing_is_known(
    client: httpx.AsyncClient, publisher: Publisher, before: Snapshot, after: Snapshot
) -> None:
    publisher.publish(at_tick(after, 7))
    publisher.publish(replace(before, trouble="no answer"))
    publisher.publish(at_tick(after, 8))
    history = (await client.get("/v1/history")).json()
    assert history["at_s"] == [1_000_007.0, 1_000_008.0]
    assert history["backends"]["s1"] == {
        "t_x_ms": [40.0, 40.0],
        "expected_t_x_ms": [12.5, 12.5],
        "rho_bg": [0.5, 0.5],
        "weight": [100, 100],
    }
    assert history["backends"]["s2"]["t_x_ms"] == [None, None]
    one = (await client.get("/v1/history", params={"backend": "s2"})).json()
    assert list(one["backends"]) == ["s2"]


async def test_the_timeline_tells_changes_once(
    client: httpx.AsyncClient, publisher: Publisher, before: Snapshot, after: Snapshot
) -> None:
    publisher.publish(after)
    publisher.publish(at_tick(after, 8))
    publisher.publish(replace(at_tick(after, 9), orders=Orders(frozen_since_s=1.0)))
    publisher.publish(replace(before, trouble="no answer", orders=Orders(frozen_since_s=1.0)))
    publisher.publish(replace(at_tick(after, 10), orders=Orders(None, (Override("s2", 5, 2.0),))))
    events = (await client.get("/v1/events")).json()
    assert [(e["kind"], e["backend"], e["text"]) for e in events] == [
        ("verdict", "s1", "cpu: T_x 40 ms, expected 12.5 ms"),
        ("plan", None, "shift: s1 lost half of its CPU"),
        ("weights", None, "weights in force: s1 33"),
        ("order", None, "frozen"),
        ("trouble", None, "no answer"),
        ("order", None, "no longer frozen"),
        ("order", "s2", "weight 5 by an operator"),
        ("trouble", None, "over: no answer"),
    ]
    assert [e["number"] for e in events] == list(range(1, 9))
    newer = (await client.get("/v1/events", params={"after": 6, "last": 1})).json()
    assert [e["number"] for e in newer] == [8]


async def test_the_state_shows_orders_and_the_range_of_weights(
    client: httpx.AsyncClient, publisher: Publisher, after: Snapshot
) -> None:
    order = Override("s2", 20, 1_000_600.0)
    publisher.publish(replace(after, mode=Mode.FROZEN, orders=Orders(1_000_000.0, (order,))))
    state = (await client.get("/v1/state")).json()
    assert (state["mode"], state["frozen_since_s"]) == ("frozen", 1_000_000.0)
    assert state["backends"][1]["override"] == {
        "backend": "s2",
        "weight": 20,
        "until_s": 1_000_600.0,
    }
    assert (state["meaning"]["minimum"], state["meaning"]["maximum"]) == (1, 256)


async def test_the_model_in_use(client: httpx.AsyncClient, parts: Parts) -> None:
    model = (await client.get("/v1/model")).json()
    assert model["name"] == parts.model.name
    assert model["checksum"] == parts.model.checksum()
    assert model["card"] == parts.model.card


@pytest.mark.parametrize("path", ["/assets/nothing.js", "/assets/..%2fpage.py", "/assets/"])
async def test_only_the_dashboards_own_parts_are_served(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_the_page_allows_nothing_from_elsewhere_and_nothing_inline(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in answer.text
    assert "style=" not in answer.text
    for part in ("page.css", "main.js", "icon.svg"):
        assert f"/assets/{part}" in answer.text
        assert (await client.get(f"/assets/{part}")).status_code == 200


def test_a_plan_without_data_is_no_event(publisher: Publisher, after: Snapshot) -> None:
    assert after.plan is not None
    none = replace(
        after.plan.backends[1].verdict, expected_t_x_ms=NoData("learning"), evidence=("T90 1 ms",)
    )
    calm = replace(
        after.plan,
        action=Action.HOLD,
        reason="no neighbour found",
        backends=(replace(after.plan.backends[1], verdict=none),),
        changes=(),
    )
    publisher.publish(replace(after, plan=calm, report=None))
    assert [e.text for e in publisher.timeline.after(0)] == ["hold: no neighbour found"]
