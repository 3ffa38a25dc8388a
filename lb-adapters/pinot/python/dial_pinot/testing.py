"""A Pinot for tests: its controller and one broker with the plugin, as the adapter sees them.

Answers are those of 1.5.1.  Queries are drawn by weight, as the plugin does, and posted.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dial_pinot.configuration import PLUGIN, SELECTOR
from dial_pinot.listening import Listening
from dial_pinot.sources import PATH

TABLE = "events_OFFLINE"
SERVERS = ("Server_127.0.0.2_8098", "Server_127.0.0.3_8098", "Server_127.0.0.4_8098")
STATS = (
    "(Server=SubmitDelayMs,ResponseDelayMs,ResponseSize,DeserializationTimeMs,RequestSentDelayMs)"
)


def query_log_line(
    answers: Mapping[str, int],
    *,
    table: str = TABLE,
    time_ms: int = 9,
    request: int = 1,
    exceptions: int = 0,
    unavailable: int = 0,
    unsent: Collection[str] = (),
) -> str:
    """A line as 1.5.1 writes it, up to where the plugin cuts it off.

    Parameters
    ----------
    answers : ``ResponseDelayMs`` by server as the log names it, ``127.0.0.2_O``; -1 for none.
    table, time_ms, request, exceptions : the query's.
    unavailable : segments that are nowhere.
    unsent : of the servers, those that the query was not sent to.
    """
    stats = "".join(
        f";{name}={-1 if name in unsent else 0},{delay},482,0,0" for name, delay in answers.items()
    )
    return (
        f"requestId={request},table={table},queryHash=unknown,timeMs={time_ms},docs=1200/9600,"
        "entries=0/1200,segments(queried/processed/matched/consumingQueried/consumingProcessed/"
        f"consumingMatched/unavailable):12/12/12/0/0/0/{unavailable},consumingFreshnessTimeMs=0,"
        f"servers={len(answers)}/{len(answers)},groupsTrimmed=false,groupLimitReached=false,"
        f"groupWarningLimitReached=false,brokerReduceTimeMs=0,exceptions={exceptions},"
        f"serverStats={STATS}{stats}"
    )


class FakePinot:
    """Controller and broker on one port.

    Parameters
    ----------
    listener
        Bound already; kept over a restart of the broker.
    log_url
        Where queries are posted.
    weights
        The document in force, as the plugin would have it, or ``None``.
    """

    def __init__(
        self,
        listener: socket.socket,
        log_url: str,
        weights: Callable[[], Awaitable[Mapping[str, float] | None]],
    ) -> None:
        host, port = listener.getsockname()[:2]
        self.url = f"http://{host}:{port}"
        self.ideal = {f"s{i}": dict.fromkeys(SERVERS, "ONLINE") for i in range(12)}
        self.external = {segment: dict(states) for segment, states in self.ideal.items()}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.table_config: dict[str, Any] = {
            "tableName": TABLE,
            "segmentsConfig": {"replication": "3"},
            "routing": {"instanceSelectorType": f"{PLUGIN}:{SELECTOR}"},
        }
        self.broker_config: dict[str, Any] = {"pinot.broker.client.queryPort": "8099"}
        self.jvm_arguments = ["-Ddial.weights=http://127.0.0.1:9180/v1/weights"]
        self.started = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
        self.token: str | None = None
        self.answers_controller = 200
        """Instead of the table's segments, where it is none of success."""
        self._log_url = log_url
        self._weights = weights
        self._requests = itertools.count()
        self._client = httpx.AsyncClient(
            trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )
        routes = [
            Route("/tables/{table}/{kind}", self._view),
            Route("/tables/{table}", self._table),
            Route("/instances/{name}", self._instance),
            Route("/start-time", self._start_time),
            Route("/trouble/{status:int}/start-time", self._trouble),
            Route("/appconfigs", self._app_config),
            Route("/zk/get", self._zk_get),
            Route("/zk/put", self._zk_put, methods=["PUT"]),
        ]
        self._server = Listening(Starlette(routes=routes), listener)

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()

    async def stop(self) -> None:
        """Nobody answers any more."""
        await self._client.aclose()
        await self._server.stop()

    def restart(self) -> None:
        """A new broker process."""
        self.started += timedelta(minutes=1)

    async def query(self, times: int) -> None:
        """Answer so many queries, each by one server, and post their lines."""
        weights = await self._weights() or dict.fromkeys(SERVERS, 1.0)
        turns = [name for name in SERVERS for _ in range(round(weights[name]))]
        lines = []
        for _ in range(times):
            number = next(self._requests)
            # A stride with no common factor spreads turns evenly enough for a test.
            server = turns[number * 7919 % len(turns)]
            host = server.split("_")[1]
            lines.append(query_log_line({f"{host}_O": 6}, request=number))
        await self.post(lines)

    async def post(self, lines: list[str]) -> None:
        """Post lines as the plugin does."""
        body = {
            "format": 1,
            "sender": f"4711@broker-{self.started.isoformat()}",
            "started_ms": int(self.started.timestamp() * 1e3),
            "dropped": 0,
            "weights_version": None,
            "lines": [f"{int(time.time() * 1e3)} {line}" for line in lines],
        }
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = await self._client.post(self._log_url + PATH, json=body, headers=headers)
        answer.raise_for_status()

    async def _view(self, request: Request) -> Response:
        if self.answers_controller != 200:
            return Response(status_code=self.answers_controller)
        views = {"idealstate": self.ideal, "externalview": self.external}
        if request.path_params["table"] != TABLE:
            return JSONResponse({"code": 404, "error": "Table not found"}, 404)
        return JSONResponse({"OFFLINE": views[request.path_params["kind"]], "REALTIME": None})

    async def _table(self, request: Request) -> Response:
        known = request.path_params["table"] == TABLE
        return JSONResponse({"OFFLINE": self.table_config} if known else {})

    async def _instance(self, request: Request) -> Response:
        name = request.path_params["name"]
        _, host, port = name.split("_")
        return JSONResponse({"instanceName": name, "hostName": host, "port": port, "enabled": True})

    async def _start_time(self, _: Request) -> Response:
        return PlainTextResponse(self.started.isoformat())

    async def _trouble(self, request: Request) -> Response:
        return Response(status_code=request.path_params["status"])

    async def _app_config(self, _: Request) -> Response:
        jvm = {"args": self.jvm_arguments, "envVariables": {}}
        return JSONResponse({"jvmConfig": jvm, "pinotConfig": self.broker_config})

    async def _zk_get(self, request: Request) -> Response:
        node = self.nodes.get(request.query_params["path"])
        return Response(status_code=204) if node is None else JSONResponse(node)

    async def _zk_put(self, request: Request) -> Response:
        self.nodes[request.query_params["path"]] = json.loads(await request.body())
        return JSONResponse({"status": "Successfully updated"})
